// Atomic operations, real ones.  Every so many of them the thread gives way, so that a thread that spins on one does not
// keep the others from running.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "engine.h"

namespace baracuda_cpu {

template <std::size_t Bytes>
struct Bits;
template <>
struct Bits<2> {
    using type = unsigned short;
};
template <>
struct Bits<4> {
    using type = unsigned;
};
template <>
struct Bits<8> {
    using type = unsigned long long;
};

// *address = change(*address), atomically; returns what was there.
template <typename T, typename Change>
T atomic_change(T* address, Change change) {
    using bits_t = typename Bits<sizeof(T)>::type;
    count_atomic();
    auto* const place = reinterpret_cast<bits_t*>(address);
    bits_t before = __atomic_load_n(place, __ATOMIC_SEQ_CST);
    for (;;) {
        T old;
        memcpy(static_cast<void*>(&old), &before, sizeof(T));
        const T fresh = change(old);
        bits_t after;
        memcpy(&after, static_cast<const void*>(&fresh), sizeof(T));
        if (__atomic_compare_exchange_n(place, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return old;
    }
}

template <typename T>
T atomic_swap_if(T* address, T expected, T desired) {
    count_atomic();
    __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

}  // namespace baracuda_cpu

#define BARACUDA_ATOMIC(suffix, name, type, expression)                                                 \
    inline type name##suffix(type* address, type value) {                                               \
        return baracuda_cpu::atomic_change(address, [&](type old) -> type { return expression; });      \
    }
// For a block and for a system: the scopes mean the same here.
#define BARACUDA_ATOMIC_SCOPES(name, type, expression)    \
    BARACUDA_ATOMIC(, name, type, expression)             \
    BARACUDA_ATOMIC(_block, name, type, expression)       \
    BARACUDA_ATOMIC(_system, name, type, expression)
#define BARACUDA_ATOMIC_INTEGERS(name, expression)                     \
    BARACUDA_ATOMIC_SCOPES(name, int, expression)                      \
    BARACUDA_ATOMIC_SCOPES(name, unsigned, expression)                 \
    BARACUDA_ATOMIC_SCOPES(name, unsigned long long, expression)       \
    BARACUDA_ATOMIC_SCOPES(name, long long, expression)

BARACUDA_ATOMIC_SCOPES(atomicAdd, int, static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value)))
BARACUDA_ATOMIC_SCOPES(atomicAdd, unsigned, old + value)
BARACUDA_ATOMIC_SCOPES(atomicAdd, unsigned long long, old + value)
BARACUDA_ATOMIC_SCOPES(atomicAdd, float, old + value)
BARACUDA_ATOMIC_SCOPES(atomicAdd, double, old + value)
BARACUDA_ATOMIC_SCOPES(atomicAdd, __half, __hadd(old, value))
BARACUDA_ATOMIC_SCOPES(atomicAdd, __nv_bfloat16, __hadd(old, value))
BARACUDA_ATOMIC_SCOPES(atomicAdd, __half2, __hadd2(old, value))
BARACUDA_ATOMIC_SCOPES(atomicAdd, __nv_bfloat162, __hadd2(old, value))
BARACUDA_ATOMIC_SCOPES(atomicSub, int, static_cast<int>(static_cast<unsigned>(old) - static_cast<unsigned>(value)))
BARACUDA_ATOMIC_SCOPES(atomicSub, unsigned, old - value)
BARACUDA_ATOMIC_SCOPES(atomicExch, float, (static_cast<void>(old), value))
BARACUDA_ATOMIC_INTEGERS(atomicExch, (static_cast<void>(old), value))
BARACUDA_ATOMIC_INTEGERS(atomicMin, old < value ? old : value)
BARACUDA_ATOMIC_INTEGERS(atomicMax, old > value ? old : value)
BARACUDA_ATOMIC_INTEGERS(atomicAnd, old & value)
BARACUDA_ATOMIC_INTEGERS(atomicOr, old | value)
BARACUDA_ATOMIC_INTEGERS(atomicXor, old ^ value)
BARACUDA_ATOMIC_SCOPES(atomicInc, unsigned, old >= value ? 0u : old + 1u)
BARACUDA_ATOMIC_SCOPES(atomicDec, unsigned, old == 0u || old > value ? value : old - 1u)
#undef BARACUDA_ATOMIC
#undef BARACUDA_ATOMIC_SCOPES
#undef BARACUDA_ATOMIC_INTEGERS

#define BARACUDA_CAS(type)                                                                                                             \
    inline type atomicCAS(type* address, type expected, type desired) { return baracuda_cpu::atomic_swap_if(address, expected, desired); } \
    inline type atomicCAS_block(type* address, type expected, type desired) {                                                          \
        return baracuda_cpu::atomic_swap_if(address, expected, desired);                                                               \
    }                                                                                                                                  \
    inline type atomicCAS_system(type* address, type expected, type desired) {                                                         \
        return baracuda_cpu::atomic_swap_if(address, expected, desired);                                                               \
    }
BARACUDA_CAS(int)
BARACUDA_CAS(unsigned)
BARACUDA_CAS(unsigned long long)
BARACUDA_CAS(unsigned short)
#undef BARACUDA_CAS
