"""The CPU execution of CUDA kernels, on kernels small enough to check by hand."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .cuda_on_cpu import (
    CpuCompileError,
    CpuLaunchError,
    Library,
    available,
    build,
    build_text,
    entry_names,
    pack,
    source_file,
)
from .cuda_on_cpu.sanitized import Launch, run_python, run_sanitized, runtime

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler")
needs_sanitizer = pytest.mark.skipif(not available() or runtime() is None, reason="no libasan")

SEEDS = (None, 0, 1, 2)
ONE = (1, 1, 1)


def run(
    library: Library,
    entry: str,
    *values: Any,
    grid: Any = 1,
    block: Any = 32,
    smem_bytes: int = 0,
    **options: Any,
) -> None:
    """Launch with one-dimensional extents allowed."""
    as_three = [(extent, 1, 1) if isinstance(extent, int) else extent for extent in (grid, block)]
    library.launch(entry, as_three[0], as_three[1], smem_bytes, pack(*values), **options)


# ------------------------------------------------------------------------------------------- barriers and shared memory

REDUCTION = """
#include <cuda_bf16.h>
namespace {
using elem_t = ELEM;
using acc_t = ACC;
template <typename T> __device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}
}
extern "C" __global__ void __launch_bounds__(256, (2)) row_sums(const elem_t* __restrict__ x, acc_t* __restrict__ y, const long long n) {
    __shared__ acc_t part[8];
    acc_t sum = 0;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) sum += static_cast<acc_t>(x[blockIdx.x * n + i]);
    sum = warp_sum(sum);
    if (threadIdx.x % warpSize == 0) part[threadIdx.x / warpSize] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = warp_sum(threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : acc_t(0));
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("elem", "acc", "dtype"),
    [
        ("float", "float", np.float32),
        ("__nv_bfloat16", "float", ml_dtypes.bfloat16),
        ("double", "double", np.float64),
    ],
)
def test_block_reduction(elem: str, acc: str, dtype: Any, seed: int | None) -> None:
    """Shuffles, a static shared array and a barrier give NumPy's sums, in every order of threads."""
    library = build_text(REDUCTION.replace("ELEM", elem).replace("ACC", acc))
    x = np.random.default_rng(7).normal(size=(5, 1000)).astype(dtype)
    y = np.zeros(5, np.float64 if acc == "double" else np.float32)
    run(library, "row_sums", x, y, np.int64(1000), grid=5, block=256, seed=seed)
    np.testing.assert_allclose(
        y, x.astype(np.float64).sum(axis=1), rtol=0, atol=1e-11 if acc == "double" else 2e-4
    )


DYNAMIC = """
namespace {
__device__ __forceinline__ int* tile_of_helper() {
    extern __shared__ __align__(16) unsigned char baracuda_smem[];
    return reinterpret_cast<int*>(baracuda_smem);
}
template <int N> __device__ int* fixed() {
    __shared__ alignas(16) int values[N];
    return values;
}
}
extern "C" __global__ void reverse(int* x) {
    extern __shared__ __align__(16) unsigned char baracuda_smem[];
    int* tile = reinterpret_cast<int*>(baracuda_smem);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = x[i];
    __syncthreads();
    x[i] = tile_of_helper()[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void previous(const float* x, float* y, const int with_barrier) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    if (with_barrier) __syncthreads();
    y[threadIdx.x] = threadIdx.x == 0 ? 0.0f : tile[threadIdx.x - 1];
}
extern "C" __global__ void unwritten(float* y, int* z) {
    extern __shared__ __align__(16) unsigned char baracuda_smem[];
    if (blockIdx.x == 0 && threadIdx.x == 0) fixed<4>()[3] = 5;
    y[blockIdx.x * blockDim.x + threadIdx.x] = reinterpret_cast<float*>(baracuda_smem)[threadIdx.x];
    z[blockIdx.x] = fixed<4>()[3];
}
extern "C" __global__ void votes(int* y) {
    const int odd = threadIdx.x & 1;
    int* mine = y + 4 * threadIdx.x;
    mine[0] = __syncthreads_count(odd);
    mine[1] = __syncthreads_or(threadIdx.x == 77);
    mine[2] = __syncthreads_and(threadIdx.x != 77);
    mine[3] = __syncthreads_or(0);
}
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_dynamic_shared_memory(seed: int | None) -> None:
    """`extern __shared__` is one array, in a kernel and in a helper in an unnamed namespace; barriers order its use."""
    x = np.arange(4 * 96, dtype=np.int32)
    run(build_text(DYNAMIC), "reverse", x, grid=4, block=96, smem_bytes=96 * 4, seed=seed)
    assert (x.reshape(4, 96) == np.arange(4 * 96).reshape(4, 96)[:, ::-1]).all()


def test_a_missing_barrier_shows_in_another_order() -> None:
    """Without its barrier the kernel is right when threads run in order, and wrong for some seed; with it, always right."""
    library = build_text(DYNAMIC)
    x = np.arange(64, dtype=np.float32) + 1
    want = np.concatenate([[0], x[:-1]])
    right = {}
    for barrier in (0, 1):
        for seed in (None, 0, 1, 2, 3):
            y = np.zeros(64, np.float32)
            run(library, "previous", x, y, np.int32(barrier), block=64, seed=seed)
            right[barrier, seed] = np.array_equal(y, want)
    assert right[0, None], "in order, thread t - 1 has written before t reads"
    assert not any(right[0, seed] for seed in (0, 1, 2, 3))
    assert all(right[1, seed] for seed in (None, 0, 1, 2, 3))


def test_a_seed_repeats_its_order() -> None:
    """One seed, one order; another seed, another one."""
    library = build_text(
        'extern "C" __global__ void order(int* y, int* n) { y[*n] = blockIdx.x * blockDim.x + threadIdx.x; ++*n; __syncthreads(); }'
    )
    orders = []
    for seed in (5, 5, 6):
        y = np.zeros(256, np.int32)
        run(library, "order", y, np.zeros(1, np.int32), grid=4, block=64, seed=seed)
        assert sorted(y) == list(range(256))
        orders.append(y.tolist())
    assert orders[0] == orders[1] != orders[2]
    blocks = [list(dict.fromkeys(thread // 64 for thread in order)) for order in orders]
    assert blocks[0] != [0, 1, 2, 3] or blocks[2] != [0, 1, 2, 3], "blocks have no order either"


def test_unwritten_shared_memory_is_nan() -> None:
    """Every block starts with all bits set, dynamic and static, also after a block that wrote."""
    y, z = np.zeros(64, np.float32), np.zeros(2, np.int32)
    run(build_text(DYNAMIC), "unwritten", y, z, grid=2, block=32, smem_bytes=128)
    assert np.isnan(y).all()
    assert z.tolist() == [5, -1]


@pytest.mark.parametrize("seed", SEEDS)
def test_block_votes(seed: int | None) -> None:
    """`__syncthreads_count`, `_or`, `_and`."""
    y = np.zeros((96, 4), np.int32)
    run(build_text(DYNAMIC), "votes", y, block=96, seed=seed)
    assert (y == [48, 1, 0, 0]).all()


def test_indices() -> None:
    """threadIdx, blockIdx, blockDim and gridDim in three dimensions."""
    library = build_text(
        """extern "C" __global__ void where(unsigned* y) {
            const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
            const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
            unsigned* mine = y + 6 * (block * blockDim.x * blockDim.y * blockDim.z + thread);
            mine[0] = threadIdx.x; mine[1] = threadIdx.y; mine[2] = threadIdx.z;
            mine[3] = blockIdx.x; mine[4] = blockIdx.y; mine[5] = blockIdx.z;
        }"""
    )
    y = np.full((3 * 2 * 2, 4 * 3 * 2, 6), 99, np.uint32)
    run(library, "where", y, grid=(2, 2, 3), block=(4, 3, 2))
    want = [[(t % 4, t // 4 % 3, t // 12, b % 2, b // 2 % 2, b // 4) for t in range(24)] for b in range(12)]
    assert (y == want).all()


# ---------------------------------------------------------------------------------------------------------------- warps

WARP = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
namespace {
template <typename T> __device__ void four(const T* x, T* y, int width) {
    const int t = threadIdx.x;
    y[t] = __shfl_sync(0xffffffffu, x[t], 5, width);
    y[32 + t] = __shfl_up_sync(0xffffffffu, x[t], 3, width);
    y[64 + t] = __shfl_down_sync(0xffffffffu, x[t], 3, width);
    y[96 + t] = __shfl_xor_sync(0xffffffffu, x[t], 12, width);
}
}
#define FOUR(name, type) extern "C" __global__ void shuffles_##name(const type* x, type* y, int width) { four(x, y, width); }
FOUR(int, int)
"""
for _name, _type in (
    ("u64", "unsigned long long"),
    ("f32", "float"),
    ("f64", "double"),
    ("f16", "__half"),
    ("bf16", "__nv_bfloat16"),
):
    WARP += f'extern "C" __global__ void shuffles_{_name}(const {_type}* x, {_type}* y, int width) {{ four(x, y, width); }}\n'
WARP += """
extern "C" __global__ void collect(unsigned* y) {
    const unsigned t = threadIdx.x, full = 0xffffffffu;
    unsigned* mine = y + 12 * t;
    int equal = 7;
    mine[0] = __ballot_sync(full, t % 3 == 0);
    mine[1] = __any_sync(full, t == 31);
    mine[2] = __all_sync(full, t != 31);
    mine[3] = __match_any_sync(full, t / 10);
    mine[4] = __match_all_sync(full, 1.5f, &equal);
    mine[5] = equal;
    mine[6] = __reduce_add_sync(full, t);
    mine[7] = __reduce_min_sync(full, static_cast<int>(t) - 10);
    mine[8] = __reduce_max_sync(full, static_cast<int>(t) - 40);
    mine[9] = __reduce_xor_sync(full, 1u << t);
    mine[10] = __popc(__activemask()) == 1 ? __match_all_sync(full, t, &equal) : 99u;
    mine[11] = equal;
}
extern "C" __global__ void halves(int* y) {
    const unsigned t = threadIdx.x;
    int value = static_cast<int>(t);
    if (t < 16) {
        for (int offset = 8; offset > 0; offset >>= 1) value += __shfl_xor_sync(0x0000ffffu, value, offset);
    } else {
        for (int offset = 8; offset > 0; offset >>= 1) value += __shfl_down_sync(0xffff0000u, value, offset, 16);
    }
    y[t] = value;
}
extern "C" __global__ void outside(float* y) {
    if (threadIdx.x < 8) y[threadIdx.x] = __shfl_down_sync(0xffu, 1.0f, 4);
}
"""
WARP = WARP.replace(
    """#define FOUR(name, type) extern "C" __global__ void shuffles_##name(const type* x, type* y, int width) { four(x, y, width); }
FOUR(int, int)
""",
    'extern "C" __global__ void shuffles_i32(const int* x, int* y, int width) { four(x, y, width); }\n',
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("width", [32, 16, 8])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("i32", np.int32),
        ("u64", np.uint64),
        ("f32", np.float32),
        ("f64", np.float64),
        ("f16", np.float16),
        ("bf16", ml_dtypes.bfloat16),
    ],
)
def test_shuffles(name: str, dtype: Any, width: int, seed: int | None) -> None:
    """All four shuffles, all widths; lanes whose source is outside the segment keep their own value."""
    x = (np.arange(32) * 3 + 1).astype(dtype)
    y = np.zeros((4, 32), dtype)
    run(build_text(WARP), f"shuffles_{name}", x, y, np.int32(width), seed=seed)
    lane = np.arange(32)
    first, last = lane // width * width, lane // width * width + width - 1
    sources = [
        first + 5 % width,
        np.where(lane - 3 >= first, lane - 3, lane),
        np.where(lane + 3 <= last, lane + 3, lane),
        np.where(lane ^ 12 <= last, lane ^ 12, lane),
    ]
    assert (y == np.stack([x[source] for source in sources])).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_votes_matches_and_reductions_of_a_warp(seed: int | None) -> None:
    """Every collective of a warp against plain arithmetic."""
    y = np.zeros((32, 12), np.uint32)
    run(build_text(WARP), "collect", y, seed=seed)
    for lane in range(32):
        same = sum(1 << other for other in range(32) if other // 10 == lane // 10)
        ballot = sum(1 << other for other in range(0, 32, 3))
        want = [ballot, 1, 0, same, 0xFFFFFFFF, 1, 496, 2**32 - 10, 2**32 - 9, 0xFFFFFFFF, 0, 0]
        assert y[lane].tolist() == want


@pytest.mark.parametrize("seed", SEEDS)
def test_half_warps_shuffle_apart(seed: int | None) -> None:
    """Two masks of one warp at different operations do not disturb each other."""
    y = np.zeros(32, np.int32)
    run(build_text(WARP), "halves", y, seed=seed)
    assert (y[:16] == 120).all()
    assert y[16] == sum(range(16, 32))


def test_reading_a_lane_outside_the_mask() -> None:
    """The value is undefined: NaN bits, or an error when strict."""
    library = build_text(WARP)
    y = np.zeros(8, np.float32)
    run(library, "outside", y)
    assert (y[:4] == 1).all()
    assert np.isnan(y[4:]).all()
    with pytest.raises(CpuLaunchError, match=r"reads lane 8, which mask 0x000000ff leaves out"):
        run(library, "outside", y, strict=True)


# -------------------------------------------------------------------------------------------------------------- atomics

ATOMICS = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void add_all(int* i, unsigned* u, unsigned long long* ull, float* f, double* d, __half* h, __nv_bfloat16* b) {
    atomicAdd(i, -1);
    atomicAdd(u, 2u);
    atomicAdd(ull, 1ull << 33);
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    atomicAdd(h, __float2half_rn(1.0f));
    atomicAdd(b, __float2bfloat16_rn(1.0f));
}
extern "C" __global__ void others(int* y, unsigned short* s) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicMax(y, i);
    atomicMin(y + 1, -i);
    atomicOr(y + 2, 1 << (i % 8));
    atomicXor(y + 3, i);
    atomicInc(reinterpret_cast<unsigned*>(y + 4), 9u);
    atomicDec(reinterpret_cast<unsigned*>(y + 5), 9u);
    if (atomicExch(y + 6, i) == -1) y[7] = 1;
    int seen = y[8], before;
    do {
        before = seen;
        seen = atomicCAS(y + 8, before, before + 3);
    } while (seen != before);
    unsigned short old = *s, was;
    do {
        was = old;
        old = atomicCAS(s, was, static_cast<unsigned short>(was + 1));
    } while (old != was);
}
extern "C" __global__ void not_atomic(int* y) {
    const int before = *y;
    __threadfence();
    *y = before + 1;
}
extern "C" __global__ void last_block(const float* x, float* partial, unsigned* ticket, float* y) {
    __shared__ bool last;
    float sum = x[blockIdx.x * 32 + threadIdx.x];
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x != 0) return;
    float total = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) total += __ldcg(partial + i);
    *y = total;
}
extern "C" __global__ void mutex(int* lock, int* y) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    const int before = *y;
    __nanosleep(20);
    *y = before + 1;
    __threadfence();
    atomicExch(lock, 0);
}
extern "C" __global__ void waits_for_nobody(int* flag) {
    while (atomicAdd(flag, 0) == 0) {
    }
}
extern "C" __global__ void endless(volatile int* flag) {
    while (*flag == 0) {
    }
}
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_atomic_adds_across_blocks(seed: int | None) -> None:
    """Seven types, 1280 threads."""
    cells = [
        np.zeros(1, dtype)
        for dtype in (np.int32, np.uint32, np.uint64, np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
    ]
    run(build_text(ATOMICS), "add_all", *cells, grid=10, block=128, seed=seed)
    assert [float(cell[0]) for cell in cells] == [
        -1280,
        2560,
        1280 * 2.0**33,
        640,
        320,
        1280,
        256,
    ]  # bf16 sticks at 256.


@pytest.mark.parametrize("seed", SEEDS)
def test_other_atomics(seed: int | None) -> None:
    """Minimum, maximum, bits, wrapping counters, exchange, compare and swap of 32 and 16 bits."""
    y = np.array([-5, 5, 0, 0, 0, 0, -1, 0, 10], np.int32)
    s = np.array([65500, 123], np.uint16)
    run(build_text(ATOMICS), "others", y, s, grid=3, block=64, seed=seed)
    xor = int(np.bitwise_xor.reduce(np.arange(192)))
    assert y[:6].tolist() == [191, -191, 255, xor, 192 % 10, (-192) % 10]
    assert y[7:].tolist() == [1, 10 + 3 * 192]
    assert s.tolist() == [(65500 + 192) % 65536, 123]


def test_a_read_and_a_write_are_not_an_atomic() -> None:
    """With a seed threads give way at fences and atomics, so a lost update shows."""
    for seed, lost in ((None, False), (1, True)):
        y = np.zeros(1, np.int32)
        run(build_text(ATOMICS), "not_atomic", y, block=256, seed=seed)
        assert (y[0] < 256) == lost


@pytest.mark.parametrize("seed", SEEDS)
def test_last_block_reduces(seed: int | None) -> None:
    """A ticket tells the last block, whatever the order of blocks."""
    x = np.random.default_rng(1).integers(0, 100, 32 * 20).astype(np.float32)
    y = np.zeros(1, np.float32)
    run(
        build_text(ATOMICS),
        "last_block",
        x,
        np.zeros(20, np.float32),
        np.zeros(1, np.uint32),
        y,
        grid=20,
        seed=seed,
    )
    assert y[0] == x.sum()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_spin_lock_lets_its_holder_run(seed: int | None) -> None:
    """Threads that spin on an atomic give way."""
    y = np.zeros(1, np.int32)
    run(build_text(ATOMICS), "mutex", np.zeros(1, np.int32), y, grid=2, block=40, seed=seed)
    assert y[0] == 80


def test_spinning_for_ever_is_reported() -> None:
    """On an atomic as a livelock, on plain memory when the CPU time is spent; both name the thread."""
    with pytest.raises(CpuLaunchError, match=r"block \(0,0,0\) thread \(\d,0,0\): spins"):
        run(build_text(ATOMICS), "waits_for_nobody", np.zeros(1, np.int32), block=2)
    with pytest.raises(
        CpuLaunchError, match=r"block \(0,0,0\) thread \(0,0,0\): the launch ran out of its CPU time"
    ):
        run(build_text(ATOMICS), "endless", np.zeros(1, np.int32), cpu_seconds=0.1)


# ------------------------------------------------------------------------------------------------------------- mistakes

MISTAKES = """
extern "C" __global__ void half_a_barrier(int* y) {
    if (threadIdx.x < 48) __syncthreads();
    y[threadIdx.x] = 1;
}
extern "C" __global__ void two_barriers() {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}
extern "C" __global__ void barrier_against_warp() {
    if (threadIdx.x == 5)
        __syncthreads();
    else
        __syncwarp();
}
extern "C" __global__ void one_lane_late(int* y) {
    for (int i = 0; i < (threadIdx.x == 3 ? 2 : 1); ++i) y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, i, 1);
}
extern "C" __global__ void lane_left(int* y) {
    if (threadIdx.x == 9) return;
    y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
}
extern "C" __global__ void lanes_that_never_were(int* y) { y[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1, 1); }
extern "C" __global__ void not_in_mask(int* y) { y[threadIdx.x] = __shfl_xor_sync(0xfffffffeu, 1, 1); }
extern "C" __global__ void two_shuffles(int* y) {
    if (threadIdx.x < 16)
        y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
    else
        y[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1, 1);
}
extern "C" __global__ void returns_early(int* y, int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();
    __syncwarp();
    y[threadIdx.x] = 1;
}
extern "C" __global__ void assumes(int n) { __builtin_assume(n % 4 == 0); }
extern "C" __global__ void traps(int n) { if (threadIdx.x == n) __trap(); }
extern "C" __global__ void dereferences(int* y) { y[threadIdx.x] = 1; }
extern "C" __global__ void divides(int* y, int n) { y[0] = 7 / n; }
extern "C" __global__ void overflows(int* y) {
    volatile char much[200000];
    much[0] = 1;
    y[0] = much[0];
}
extern "C" __global__ void fine(int* y) { __syncthreads(); y[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
struct three_t { int a; long long b; };
extern "C" __global__ void by_value(long long* y, const __grid_constant__ three_t three, const short s, const bool flag) {
    y[0] = three.a; y[1] = three.b; y[2] = s; y[3] = flag;
}
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("entry", "values", "report"),
    [
        (
            "two_barriers",
            0,
            r"__syncthreads, but \d+ threads of the block wait in __syncthreads at \w+\.cu:\d+",
        ),
        (
            "barrier_against_warp",
            0,
            r"(?s)no thread can go on(?=.* 1 wait in __syncthreads at).* 31 wait in __syncwarp of warp 0, mask 0xffffffff, lanes 0x00000020 missing",
        ),
        (
            "one_lane_late",
            64,
            r"__shfl_sync with mask 0xffffffff names lanes|has exited while lanes 0x00000008 wait for it in __shfl_sync|no thread can go on",
        ),
        (
            "lane_left",
            64,
            r"names lanes 0x00000200, which have exited|thread \(9,0,0\): has exited while lanes 0x\w+ wait for it in __shfl_sync",
        ),
        (
            "not_in_mask",
            64,
            r"__shfl_sync with mask 0xfffffffe, which leaves out the calling lane 0|no thread can go on",
        ),
        (
            "two_shuffles",
            64,
            r"__shfl_sync with mask 0xffffffff meets __shfl_sync of lanes 0x\w+ at \w+\.cu:\d+",
        ),
    ],
)
def test_divergent_barriers_are_reported(entry: str, values: int, report: str, seed: int | None) -> None:
    """Nothing hangs and nothing passes: the report says who waits where, and the engine is fit for the next launch."""
    library = build_text(MISTAKES)
    with pytest.raises(CpuLaunchError, match=report) as caught:
        run(library, entry, *([np.zeros(values, np.int32)] if values else []), grid=2, block=64, seed=seed)
    assert "block (" in str(caught.value)
    y = np.zeros(128, np.int32)
    run(library, "fine", y, grid=2, block=64)
    assert y.all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_mask_in_a_partial_warp_is_reported(seed: int | None) -> None:
    """The last warp of a block of 48 threads has sixteen lanes; an exchange that names the others is undefined."""
    with pytest.raises(
        CpuLaunchError, match=r"mask 0xffffffff names lanes 0xffff0000, which have exited or do not exist"
    ):
        run(build_text(MISTAKES), "lanes_that_never_were", np.zeros(48, np.int32), block=48, seed=seed)


def test_failures_do_not_pile_up() -> None:
    """The stacks of a failed launch are used again."""
    library = build_text(MISTAKES)
    maps = Path("/proc/self/maps")
    counts = []
    for round_ in range(60):
        with pytest.raises(CpuLaunchError):
            run(library, "barrier_against_warp", block=512)
        if round_ in (9, 59):
            counts.append(len(maps.read_text().splitlines()))
    assert counts[1] - counts[0] < 1000


@pytest.mark.parametrize("seed", SEEDS)
def test_exited_threads_and_barriers(seed: int | None) -> None:
    """`__syncthreads` and `__syncwarp` wait for the threads that are left, as the hardware's do; strict launches refuse."""
    library = build_text(MISTAKES)
    y = np.zeros(64, np.int32)
    run(library, "returns_early", y, np.int32(40), block=64, seed=seed)
    assert y.sum() == 40
    run(library, "returns_early", y, np.int32(64), block=64, seed=seed, strict=True)
    with pytest.raises(CpuLaunchError, match=r"(?s)exited"):
        run(library, "returns_early", y, np.int32(40), block=64, seed=seed, strict=True)
    run(library, "half_a_barrier", y, block=64, seed=seed)
    with pytest.raises(
        CpuLaunchError,
        match=r"has exited while \d+ threads wait for it in __syncthreads|after \d+ threads of the block have exited",
    ):
        run(library, "half_a_barrier", y, block=64, seed=seed, strict=True)


@pytest.mark.parametrize(
    ("entry", "values", "report"),
    [
        ("assumes", [np.int32(6)], r"thread \(0,0,0\) at \w+\.cu:\d+: assumption broken: n % 4 == 0"),
        ("traps", [np.int32(17)], r"block \(0,0,0\) thread \(17,0,0\) at \w+\.cu:\d+: __trap"),
        ("dereferences", [None], r"thread \(0,0,0\): illegal or misaligned address"),
        ("divides", [np.zeros(1, np.int32), np.int32(0)], r"integer division by zero"),
        ("overflows", [np.zeros(1, np.int32)], r"stack overflow"),
    ],
)
def test_crashes_are_reported(entry: str, values: list[Any], report: str) -> None:
    """A crash is a failed launch that names the thread, not the end of the process; twice in a row too."""
    library = build_text(MISTAKES)
    for _ in range(2):
        with pytest.raises(CpuLaunchError, match=report):
            run(library, entry, *values)
    run(library, "assumes", np.int32(8))


@pytest.mark.parametrize(
    ("options", "report"),
    [
        ({"grid": 0}, r"grid \(0,1,1\)"),
        ({"grid": (1, 65536, 1)}, r"grid \(1,65536,1\)"),
        ({"block": (32, 33, 1)}, r"block \(32,33,1\)"),
        ({"block": (1, 1, 65)}, r"block \(1,1,65\)"),
        ({"block": 0}, r"block \(0,1,1\)"),
        ({"smem_bytes": 227 * 1024 + 1}, r"232449 bytes of dynamic shared memory"),
        ({"grid": 6, "cluster": (4, 1, 1)}, r"cluster \(4,1,1\)"),
        ({"grid": 32, "cluster": (32, 1, 1)}, r"cluster \(32,1,1\)"),
        ({"grid": 17, "block": 1024, "cooperative": True}, r"cooperative"),
    ],
)
def test_launch_limits(options: dict[str, Any], report: str) -> None:
    """What the driver would refuse is refused, and writes nothing."""
    y = np.zeros(64 * 1024, np.int32)
    with pytest.raises(CpuLaunchError, match=report):
        run(build_text(MISTAKES), "fine", y, **options)
    assert not y.any()


def test_parameters() -> None:
    """Structures and small integers pass by value; a wrong count, an unknown kernel and a Python number are refused."""
    library = build_text(MISTAKES)
    assert library.parameter_sizes("by_value") == (8, 16, 2, 1)

    class Three(ctypes.Structure):
        _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_longlong))

    y = np.zeros(4, np.int64)
    run(library, "by_value", y, Three(-7, 1 << 40), np.int16(-3), np.bool_(True), block=1)
    assert y.tolist() == [-7, 1 << 40, -3, 1]
    with pytest.raises(CpuLaunchError, match=r"3 parameters given, 4 wanted"):
        run(library, "by_value", y, Three(), np.int16(0))
    with pytest.raises(CpuLaunchError, match=r"no such kernel; there are half_a_barrier"):
        run(library, "nothing")
    with pytest.raises(TypeError, match=r"17"):
        pack(17)


# ----------------------------------------------------------------------------------------------------------- arithmetic

CONVERSIONS = "\n".join(
    f'extern "C" __global__ void {f}2{t}_{mode}(const {ftype}* x, {ttype}* y) {{ y[threadIdx.x] = __{f}2{t}_{mode}(x[threadIdx.x]); }}'
    for f, ftype in (("float", "float"), ("double", "double"))
    for t, ttype in (("int", "int"), ("uint", "unsigned"), ("ll", "long long"), ("ull", "unsigned long long"))
    for mode in ("rn", "rz", "rd", "ru")
)


@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("target", ["int", "uint", "ll", "ull"])
@pytest.mark.parametrize("source", ["float", "double"])
def test_conversions_saturate(source: str, target: str, mode: str) -> None:
    """To integers: rounded as named, saturated, and NaN as PTX `cvt` has it."""
    dtype = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}[target]
    limits = np.iinfo(dtype)
    values = [
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -2.5,
        0.49,
        -0.51,
        1e4,
        2.0**31,
        -(2.0**31),
        2.0**32,
        2.0**63,
        -(2.0**63),
        2.0**64,
        1e30,
        -1e30,
        np.inf,
        -np.inf,
    ]
    values += [2147483520.0, 9223371487098961920.0]  # The last floats below 2**31 and 2**63.
    x = np.array([*values, np.nan], np.float32 if source == "float" else np.float64)
    y = np.zeros(x.size, dtype)
    run(build_text(CONVERSIONS), f"{source}2{target}_{mode}", x, y, block=x.size)
    rounding = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}[mode]
    want = [
        int(max(limits.min, min(limits.max, int(v))))
        if np.isfinite(v)
        else (limits.max if v > 0 else limits.min)
        for v in rounding(x[:-1])
    ]
    nan = (
        0
        if source == "float" and target in ("int", "uint")
        else (limits.min if limits.min < 0 else limits.max // 2 + 1)
    )
    assert y.tolist() == [*want, nan]


ARITHMETIC = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void halves(const __half* h, const __nv_bfloat16* b, __half* h2, __nv_bfloat16* b2) {
    const int i = threadIdx.x * 8;
    const uint4 packed = __ldg(reinterpret_cast<const uint4*>(h + i));
    __half lanes[8];
    *reinterpret_cast<uint4*>(lanes) = packed;
    for (int k = 0; k < 8; ++k) lanes[k] = __float2half_rn(__half2float(lanes[k]) * 1.3f);
    __stcs(reinterpret_cast<uint4*>(h2 + i), *reinterpret_cast<uint4*>(lanes));
    const uint4 other = *reinterpret_cast<const uint4*>(b + i);
    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&other);
    for (int k = 0; k < 4; ++k) {
        const float2 pair = __bfloat1622float2(pairs[k]);
        b2[i + 2 * k] = __float2bfloat16_rn(pair.x * 1.3f);
        b2[i + 2 * k + 1] = __float2bfloat16(pair.y * 1.3f);
    }
}
extern "C" __global__ void numbers(const float* x, const float* z, float* y) {
    const float a = x[threadIdx.x], b = z[threadIdx.x];
    float* mine = y + 8 * threadIdx.x;
    mine[0] = __fdiv_rn(a, b);
    mine[1] = __fmaf_rn(a, b, -a * b);
    mine[2] = rsqrtf(a);
    mine[3] = min(a, b);
    mine[4] = max(a, b);
    mine[5] = __saturatef(a - b);
    mine[6] = __expf(-a) + __logf(b) + __powf(a, b);
    mine[7] = __fadd_rn(__fmul_rn(a, b), -a * b);
}
extern "C" __global__ void bits(const unsigned* x, long long* y) {
    const unsigned a = x[threadIdx.x];
    long long* mine = y + 10 * threadIdx.x;
    mine[0] = __popc(a);
    mine[1] = __clz(static_cast<int>(a));
    mine[2] = __ffs(static_cast<int>(a));
    mine[3] = __brev(a);
    mine[4] = __umulhi(a, 0x9E3779B9u);
    mine[5] = __mulhi(static_cast<int>(a), -77777);
    mine[6] = static_cast<long long>(__umul64hi(0x123456789ABCDEFull * a, ~0ull / 3));
    mine[7] = __byte_perm(a, 0x44332211u, 0x7061u);
    mine[8] = max(static_cast<int>(a), 5u);
    mine[9] = __float_as_int(__int_as_float(static_cast<int>(a & 0x7f000000u)));
}
extern "C" __global__ void fused(const float* x, float* y) { y[0] = x[0] * x[0] - x[1]; y[1] = __fsub_rn(__fmul_rn(x[2], x[2]), x[3]); }
"""


def test_vector_loads_of_16_bit_types() -> None:
    """Eight elements by one uint4, through NVIDIA's own conversions, against NumPy's rounding."""
    rng = np.random.default_rng(3)
    h = rng.normal(size=256).astype(np.float16)
    b = rng.normal(size=256).astype(ml_dtypes.bfloat16)
    h2, b2 = np.zeros_like(h), np.zeros_like(b)
    run(build_text(ARITHMETIC), "halves", h, b, h2, b2)
    assert (h2 == (h.astype(np.float32) * np.float32(1.3)).astype(np.float16)).all()
    assert (b2 == (b.astype(np.float32) * np.float32(1.3)).astype(ml_dtypes.bfloat16)).all()


def test_float_functions() -> None:
    """Rounded operations, fused multiply-add, NaN-dropping min and max, approximations."""
    rng = np.random.default_rng(4)
    x, z = rng.uniform(0.1, 3, 32).astype(np.float32), rng.uniform(0.1, 3, 32).astype(np.float32)
    z[7] = np.nan
    y = np.zeros((32, 8), np.float32)
    run(build_text(ARITHMETIC), "numbers", x, z, y)
    wide, other = x.astype(np.float64), z.astype(np.float64)
    assert np.array_equal(y[:, 0], x / z, equal_nan=True)
    assert np.array_equal(
        y[:, 1], (wide * other - (x * z).astype(np.float64)).astype(np.float32), equal_nan=True
    )
    np.testing.assert_array_max_ulp(y[:, 2], (1 / np.sqrt(wide)).astype(np.float32), 1)
    assert np.array_equal(y[:, 3], np.fmin(x, z))
    assert np.array_equal(y[:, 4], np.fmax(x, z))
    assert np.array_equal(y[:, 5], np.nan_to_num(np.clip(x - z, 0, 1)))
    np.testing.assert_allclose(y[:, 6], np.exp(-wide) + np.log(other) + wide**other, rtol=1e-5, atol=1e-6)
    assert (np.nan_to_num(y[:, 7]) == 0).all()


def test_bit_functions() -> None:
    """Counting, high products, permutations."""
    x = np.array([0, 1, 0x80000000, 0xFFFFFFFF, 0x12345678, 0xDEADBEEF, 0x00F00000, 77], np.uint32)
    y = np.zeros((8, 10), np.int64)
    run(build_text(ARITHMETIC), "bits", x, y, block=8)
    for value, row in zip(map(int, x), y.tolist(), strict=True):
        signed = value - 2**32 if value >= 2**31 else value
        byte = [value >> 8 * i & 255 for i in range(4)] + [0x11, 0x22, 0x33, 0x44]
        high = (0x123456789ABCDEF * value % 2**64) * ((2**64 - 1) // 3) >> 64
        assert row == [
            value.bit_count(),
            32 - value.bit_length(),
            (value & -value).bit_length(),
            int(f"{value:032b}"[::-1], 2),
            value * 0x9E3779B9 >> 32,
            signed * -77777 >> 32,
            high,
            byte[1] | byte[6] << 8 | byte[0] << 16 | byte[7] << 24,
            max(value, 5),
            value & 0x7F000000,
        ]


def test_contraction() -> None:
    """`contract` fuses a multiply and an add where the source does not forbid it, and nothing does by default."""
    if "fma" not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip("the CPU has no fused multiply-add")
    x = np.array([1 + 2.0**-12, 1 + 2.0**-11] * 2, np.float32)
    for contract in (False, True):
        y = np.zeros(2, np.float32)
        run(build_text(ARITHMETIC, contract=contract), "fused", x, y, block=1)
        assert y.tolist() == [2.0**-24 if contract else 0.0, 0.0]


# ------------------------------------------------------------------------------------- clusters and cooperative launches

GANG = """
extern "C" __global__ void cluster_sums(const int* x, int* y) {
    extern __shared__ __align__(16) unsigned char baracuda_smem[];
    __shared__ int mine;
    int* wide = reinterpret_cast<int*>(baracuda_smem);
    const unsigned rank = __clusterRelativeBlockRank(), size = __clusterSizeInBlocks();
    if (threadIdx.x == 0) mine = 0;
    __syncthreads();
    atomicAdd(&mine, x[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    // Every block writes its sum into every block's dynamic memory, and reads its neighbour's static variable.
    if (threadIdx.x < size) static_cast<int*>(__cluster_map_shared_rank(wide, threadIdx.x))[rank] = mine;
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    int total = 0;
    for (unsigned i = 0; i < size; ++i) total += wide[i];
    const int neighbour = *static_cast<int*>(__cluster_map_shared_rank(&mine, (rank + 1) % size));
    if (threadIdx.x == 0) {
        y[2 * blockIdx.x] = total;
        y[2 * blockIdx.x + 1] = neighbour;
    }
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}
extern "C" __global__ void leaves_too_soon(int* y) {
    __shared__ int mine;
    mine = 1;
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    if (__clusterRelativeBlockRank() == 1) return;
    for (int i = 0; i < 100; ++i) __nanosleep(100);
    y[blockIdx.x] = *static_cast<int*>(__cluster_map_shared_rank(&mine, 1));
}
extern "C" __global__ void one_block_misses() {
    if (__clusterRelativeBlockRank() == 0) {
        __cluster_barrier_arrive();
        __cluster_barrier_wait();
    } else {
        __syncthreads();
        if (threadIdx.x == 3) baracuda_named_barrier(2, 64);
    }
}
extern "C" __global__ void grid_rounds(int* x, int n) {
    __shared__ int left;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < n; ++round) {
        if (threadIdx.x == 0) left = x[(i + gridDim.x * blockDim.x - 1) % (gridDim.x * blockDim.x)];
        __syncthreads();
        baracuda_grid_barrier();
        if (threadIdx.x == 0) x[i] = left + 1;
        baracuda_grid_barrier();
        if (threadIdx.x != 0) x[i] = x[i - threadIdx.x];
        baracuda_grid_barrier();
    }
}
extern "C" __global__ void own_grid_barrier(unsigned* count, int* x, int* y) {
    x[blockIdx.x] = blockIdx.x + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(count, 1u);
        while (atomicAdd(count, 0u) < gridDim.x) {
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = x[(blockIdx.x + 1) % gridDim.x];
}
extern "C" __global__ void pairs_of_warps(int* y) {
    __shared__ int tile[128];
    const int pair = threadIdx.x / 64;
    for (int i = 0; i < 3; ++i) {
        tile[threadIdx.x] = static_cast<int>(threadIdx.x) + i;
        baracuda_named_barrier(1 + pair, 64);
        y[threadIdx.x] = tile[pair * 64 + 63 - threadIdx.x % 64];
        baracuda_named_barrier(1 + pair, 64);
    }
}
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_distributed_shared_memory(size: int, seed: int | None) -> None:
    """Blocks of a cluster read and write each other's shared memory, static and dynamic."""
    x = np.random.default_rng(5).integers(0, 1000, (16, 64)).astype(np.int32)
    y = np.zeros((16, 2), np.int32)
    run(
        build_text(GANG),
        "cluster_sums",
        x,
        y,
        grid=16,
        block=64,
        smem_bytes=64,
        cluster=(size, 1, 1),
        seed=seed,
    )
    sums = x.sum(axis=1).reshape(-1, size)
    assert (y[:, 0].reshape(-1, size) == sums.sum(axis=1, keepdims=True)).all()
    assert (y[:, 1].reshape(-1, size) == np.roll(sums, -1, axis=1)).all()


def test_cluster_ranks_in_two_dimensions() -> None:
    """The rank counts along x first, and neighbours share a cluster."""
    library = build_text(
        """extern "C" __global__ void ranks(int* y) {
            y[blockIdx.y * gridDim.x + blockIdx.x] = 100 * __clusterIdx().y + 10 * __clusterIdx().x + __clusterRelativeBlockRank();
        }"""
    )
    y = np.zeros((4, 4), np.int32)
    run(library, "ranks", y, grid=(4, 4, 1), block=1, cluster=(2, 2, 1))
    assert (
        y == [[100 * (i // 2) + 10 * (j // 2) + i % 2 * 2 + j % 2 for j in range(4)] for i in range(4)]
    ).all()


def test_cluster_mistakes() -> None:
    """Shared memory of a block that has gone, and a barrier that one block never reaches."""
    library = build_text(GANG)
    with pytest.raises(
        CpuLaunchError,
        match=r"block \(0,0,0\) thread \(0,0,0\) at .*maps shared memory of rank 1, whose threads have all exited",
    ):
        run(library, "leaves_too_soon", np.zeros(2, np.int32), grid=2, cluster=(2, 1, 1))
    with pytest.raises(CpuLaunchError, match=r"named barrier 2 \(1 of 64 came\)"):
        run(library, "one_block_misses", grid=2, cluster=(2, 1, 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_grid_barrier(seed: int | None) -> None:
    """All blocks of a cooperative launch meet, each with shared memory of its own."""
    x = np.repeat(np.arange(6, dtype=np.int32) * 10, 32)
    want = np.arange(6) * 10
    for _ in range(4):
        want = np.roll(want, 1) + 1
    library = build_text(GANG)
    run(library, "grid_rounds", x, np.int32(4), grid=6, cooperative=True, seed=seed)
    assert (x.reshape(6, 32) == want[:, None]).all()
    with pytest.raises(CpuLaunchError, match=r"grid barrier in a launch that is not cooperative"):
        run(library, "grid_rounds", x, np.int32(4), grid=6)


@pytest.mark.parametrize("seed", SEEDS)
def test_grid_barrier_by_hand(seed: int | None) -> None:
    """A kernel's own barrier, spinning on a counter, works in a cooperative launch and is reported in another."""
    library = build_text(GANG)
    y = np.zeros(8, np.int32)
    run(
        library,
        "own_grid_barrier",
        np.zeros(1, np.uint32),
        np.zeros(8, np.int32),
        y,
        grid=8,
        block=64,
        cooperative=True,
        seed=seed,
    )
    assert (y == (np.arange(8) + 1) % 8 + 1).all()
    with pytest.raises(CpuLaunchError, match=r"spins"):
        run(
            library,
            "own_grid_barrier",
            np.zeros(1, np.uint32),
            np.zeros(8, np.int32),
            y,
            grid=8,
            block=64,
            seed=seed,
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_named_barriers(seed: int | None) -> None:
    """Two halves of a block synchronise apart."""
    y = np.zeros(128, np.int32)
    run(build_text(GANG), "pairs_of_warps", y, block=128, seed=seed)
    assert (y == np.concatenate([np.arange(63, -1, -1), np.arange(127, 63, -1)]) + 2).all()


# ------------------------------------------------------------------------------------------------------- the sanitizers

SANITIZED = """
extern "C" __global__ void copies(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
extern "C" __global__ void loads_vectors(const float* x, float* y, int n) {
    const int i = 4 * threadIdx.x;
    if (i >= n) return;
    const float4 pack = *reinterpret_cast<const float4*>(x + i);
    y[threadIdx.x] = pack.x + pack.y + pack.z + pack.w;
}
extern "C" __global__ void dynamic(float* y, int n) {
    extern __shared__ __align__(16) unsigned char baracuda_smem[];
    float* tile = reinterpret_cast<float*>(baracuda_smem);
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = 1.0f;
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}
extern "C" __global__ void fixed(float* y, int n) {
    __shared__ float tile[32];
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = 1.0f;
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}
extern "C" __global__ void local(float* y, int n) {
    float values[8];
    for (int i = 0; i < n; ++i) values[i] = y[i] * 2;
    __syncthreads();
    y[threadIdx.x] = values[threadIdx.x % n];
}
extern "C" __global__ void casts(const float* x, int* y) { y[threadIdx.x] = static_cast<int>(x[threadIdx.x]); }
extern "C" __global__ void shifts(int* y, int by) { y[threadIdx.x] = 1 << by; }
extern "C" __global__ void meets(int* y) { y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1); if (threadIdx.x < 5) __syncthreads(); else __syncwarp(); }
"""


@needs_sanitizer
@pytest.mark.parametrize("seed", [None, 1])
def test_right_kernels_pass_the_sanitizer(seed: int | None) -> None:
    """Exact sizes, all of the dynamic shared memory, clusters and barriers: no report, and the results come back."""
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    tile = np.zeros(32, np.float32)
    rows = np.zeros(5, np.float32)
    data = np.random.default_rng(2).normal(size=(5, 1000)).astype(np.float32)
    shared = np.random.default_rng(5).integers(0, 9, (8, 64)).astype(np.int32)
    sums = np.zeros((8, 2), np.int32)
    library = [
        source_file(text)
        for text in (SANITIZED, REDUCTION.replace("ELEM", "float").replace("ACC", "float"), GANG)
    ]
    out = run_sanitized(
        library,
        [
            Launch("copies", (4, 1, 1), (32, 1, 1), 0, [x, y, np.int32(100)], seed=seed),
            Launch("loads_vectors", ONE, (32, 1, 1), 0, [x, y, np.int32(100)], seed=seed),
            Launch("dynamic", ONE, (32, 1, 1), 388, [tile, np.int32(97)], seed=seed),
            Launch("local", ONE, (8, 1, 1), 0, [np.ones(8, np.float32), np.int32(8)], seed=seed),
            Launch("row_sums", (5, 1, 1), (256, 1, 1), 0, [data, rows, np.int64(1000)], seed=seed),
            Launch("cluster_sums", (8, 1, 1), (64, 1, 1), 64, [shared, sums], seed=seed, cluster=(4, 1, 1)),
        ],
    )
    assert (out[0][0] == x).all()
    assert (out[0][1] == np.concatenate([x.reshape(25, 4).sum(axis=1), x[25:]])).all(), (
        "two launches share the buffer"
    )
    assert (out[2][0] == 1).all()
    np.testing.assert_allclose(out[4][1], data.astype(np.float64).sum(axis=1), atol=2e-4)
    assert (out[5][1][:, 0] == np.repeat(shared.reshape(2, -1).sum(axis=1), 4)).all()
    assert not y.any(), "the caller's arrays are left alone"


@needs_sanitizer
@pytest.mark.parametrize(
    ("entry", "smem_bytes", "values", "report"),
    [
        (
            "copies",
            0,
            [np.zeros(99, np.float32), np.zeros(100, np.float32), np.int32(100)],
            r"(?s)heap-buffer-overflow.*READ of size 4.* in copies",
        ),
        (
            "copies",
            0,
            [np.zeros(100, np.float32), np.zeros(99, np.float32), np.int32(100)],
            r"(?s)heap-buffer-overflow.*WRITE of size 4.* in copies",
        ),
        (
            "loads_vectors",
            0,
            [np.zeros(103, np.float32), np.zeros(32, np.float32), np.int32(104)],
            r"heap-buffer-overflow",
        ),
        ("dynamic", 388, [np.zeros(32, np.float32), np.int32(98)], r"(?s)use-after-poison.*WRITE of size 4"),
        ("fixed", 0, [np.zeros(32, np.float32), np.int32(33)], r"index 32 out of bounds"),
        ("local", 0, [np.zeros(32, np.float32), np.int32(9)], r"index 8 out of bounds|stack-buffer-overflow"),
        (
            "casts",
            0,
            [np.full(32, 3e9, np.float32), np.zeros(32, np.int32)],
            r"3e\+09 is outside the range of representable values",
        ),
        ("shifts", 0, [np.zeros(32, np.int32), np.int32(32)], r"shift exponent 32 is too large"),
        ("meets", 0, [np.zeros(32, np.int32)], r"no thread can go on"),
    ],
)
def test_the_sanitizer_finds(entry: str, smem_bytes: int, values: list[Any], report: str) -> None:
    """One element too many, in every kind of memory, and arithmetic that C++ does not define."""
    with pytest.raises(CpuLaunchError, match=report):
        run_sanitized([source_file(SANITIZED)], [Launch(entry, (4, 1, 1), (32, 1, 1), smem_bytes, values)])


@needs_sanitizer
def test_the_sanitizer_finds_misaligned_vectors() -> None:
    """A float4 at an address that is aligned to a float only, which the GPU would refuse."""
    script = f"""
import numpy as np
from tests.cuda_on_cpu import build, pack
library = build([{str(source_file(SANITIZED))!r}])
x, y = np.zeros(200, np.float32), np.zeros(32, np.float32)
library.launch("loads_vectors", (1, 1, 1), (32, 1, 1), 0, pack(x[OFFSET:], y, np.int32(100)))
print("done")
"""
    offset = "(-x.ctypes.data // 4) % 4"
    assert run_python(["-c", script.replace("OFFSET", offset)]).stdout == "done\n"
    failed = run_python(["-c", script.replace("OFFSET", offset + " + 1")])
    assert failed.returncode != 0
    assert "misaligned address" in failed.stderr


# ---------------------------------------------------------------------------------------------------------- the compiler


def test_entry_names() -> None:
    """Kernels are found by their text, whatever stands between the keyword and the name."""
    source = """
    // extern "C" __global__ void in_a_comment() {}
    __device__ void helper() {}
    extern "C" __global__ void plain(int a) {}
    extern "C" __global__ void __launch_bounds__(kThreads, (kBlocks + 1)) bounded(int a) {}
    extern "C" __global__ __launch_bounds__(256) void before(
        const float* x) {}
    extern "C" __global__ static void odd(int (*table)[4]) {}
    /* extern "C" __global__ void also_not() {} */
    """
    assert entry_names(source) == ["plain", "bounded", "before", "odd"]


def test_compile_errors_carry_the_compilers_words() -> None:
    """A source that is not C++, and one without a kernel."""
    with pytest.raises(CpuCompileError, match=r"nonsense"):
        build_text('extern "C" __global__ void broken() { nonsense; }')
    with pytest.raises(CpuCompileError, match=r"no .* kernel"):
        build_text("int f() { return 1; }")


def test_libraries_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text at the same place is compiled once; another text again."""
    from .cuda_on_cpu import toolchain

    calls = []
    original = toolchain._run
    monkeypatch.setattr(toolchain, "_run", lambda command: (calls.append(command), original(command)))
    source = tmp_path / "kernel.cu"
    for value, compiled in ((1, 1), (1, 1), (2, 2)):
        source.write_text(f'extern "C" __global__ void value(int* y) {{ *y = {value}; }}')
        y = np.zeros(1, np.int32)
        run(build([source]), "value", y, block=1)
        assert y[0] == value
        assert len(calls) == compiled


def test_two_sources_with_one_kernel_name() -> None:
    """Refused by name in one library; apart, each runs its own."""
    texts = [
        f'extern "C" __global__ void twice(int* y) {{ __shared__ int s; s = {value}; *y = s; }}'
        for value in (3, 4)
    ]
    with pytest.raises(ValueError, match=r"twice is defined by"):
        build([source_file(text) for text in texts])
    for text, value in zip(texts, (3, 4), strict=True):
        y = np.zeros(1, np.int32)
        run(build_text(text), "twice", y, block=1)
        assert y[0] == value
