// Barriers, votes, shuffles and the other warp operations.  Each remembers the line it was written on.
#pragma once

#include "engine.h"

#define BARACUDA_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(BARACUDA_SITE) { baracuda_cpu::block_barrier(baracuda_cpu::Vote::none, 0, {file, line}); }
inline int __syncthreads_or(int predicate, BARACUDA_SITE) { return baracuda_cpu::block_barrier(baracuda_cpu::Vote::any, predicate, {file, line}); }
inline int __syncthreads_and(int predicate, BARACUDA_SITE) { return baracuda_cpu::block_barrier(baracuda_cpu::Vote::all, predicate, {file, line}); }
inline int __syncthreads_count(int predicate, BARACUDA_SITE) {
    return baracuda_cpu::block_barrier(baracuda_cpu::Vote::count, predicate, {file, line});
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, BARACUDA_SITE) {
    baracuda_cpu::warp_collect(baracuda_cpu::Warp::sync, mask, 0, false, {file, line}, nullptr);
}

namespace baracuda_cpu {

template <typename T>
T exchange(unsigned mask, const T& value, unsigned source, Site site) {
    static_assert(sizeof(T) <= sizeof(Word), "a lane can hand over sixteen bytes");
    Word word{};
    memcpy(word.bytes, static_cast<const void*>(&value), sizeof(T));
    word = shuffle(mask, word, source, site);
    T result;
    memcpy(static_cast<void*>(&result), word.bytes, sizeof(T));
    return result;
}

inline unsigned first_lane(int width) { return lane() & ~(static_cast<unsigned>(width) - 1u); }
inline unsigned last_lane(int width) { return lane() | (static_cast<unsigned>(width) - 1u); }

template <typename T>
unsigned long long bits_of(const T& value) {
    static_assert(sizeof(T) <= 8, "four or eight bytes");
    unsigned long long bits = 0;
    memcpy(&bits, static_cast<const void*>(&value), sizeof(T));
    return bits;
}

}  // namespace baracuda_cpu

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, BARACUDA_SITE) {
    const unsigned from = baracuda_cpu::first_lane(width) + (static_cast<unsigned>(source) & (static_cast<unsigned>(width) - 1u));
    return baracuda_cpu::exchange(mask, value, from, {file, line});
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, BARACUDA_SITE) {
    const unsigned lane = baracuda_cpu::lane();
    const bool inside = delta <= lane - baracuda_cpu::first_lane(width);
    return baracuda_cpu::exchange(mask, value, inside ? lane - delta : lane, {file, line});
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, BARACUDA_SITE) {
    const unsigned lane = baracuda_cpu::lane();
    const bool inside = delta <= baracuda_cpu::last_lane(width) - lane;
    return baracuda_cpu::exchange(mask, value, inside ? lane + delta : lane, {file, line});
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, BARACUDA_SITE) {
    const unsigned lane = baracuda_cpu::lane();
    const unsigned from = (lane ^ static_cast<unsigned>(lane_mask)) & 31u;
    return baracuda_cpu::exchange(mask, value, from <= baracuda_cpu::last_lane(width) ? from : lane, {file, line});
}

inline unsigned __ballot_sync(unsigned mask, int predicate, BARACUDA_SITE) {
    return static_cast<unsigned>(baracuda_cpu::warp_collect(baracuda_cpu::Warp::ballot, mask, predicate != 0, false, {file, line}, nullptr));
}
inline int __any_sync(unsigned mask, int predicate, BARACUDA_SITE) {
    return static_cast<int>(baracuda_cpu::warp_collect(baracuda_cpu::Warp::any, mask, predicate != 0, false, {file, line}, nullptr));
}
inline int __all_sync(unsigned mask, int predicate, BARACUDA_SITE) {
    return static_cast<int>(baracuda_cpu::warp_collect(baracuda_cpu::Warp::all, mask, predicate != 0, false, {file, line}, nullptr));
}

// Which lanes run together is the hardware's choice; the shim's is the least that a kernel may count on.
inline unsigned __activemask() { return 1u << baracuda_cpu::lane(); }

template <typename T>
unsigned __match_any_sync(unsigned mask, T value, BARACUDA_SITE) {
    return static_cast<unsigned>(
        baracuda_cpu::warp_collect(baracuda_cpu::Warp::match_any, mask, baracuda_cpu::bits_of(value), false, {file, line}, nullptr));
}
template <typename T>
unsigned __match_all_sync(unsigned mask, T value, int* all_equal, BARACUDA_SITE) {
    return static_cast<unsigned>(
        baracuda_cpu::warp_collect(baracuda_cpu::Warp::match_all, mask, baracuda_cpu::bits_of(value), false, {file, line}, all_equal));
}

#define BARACUDA_REDUCE(name, type, is_signed)                                                                                  \
    inline type __reduce_##name##_sync(unsigned mask, type value, BARACUDA_SITE) {                                             \
        return static_cast<type>(baracuda_cpu::warp_collect(baracuda_cpu::Warp::reduce_##name, mask, static_cast<unsigned>(value), \
                                                            is_signed, {file, line}, nullptr));                                 \
    }
BARACUDA_REDUCE(add, unsigned, false)
BARACUDA_REDUCE(add, int, true)
BARACUDA_REDUCE(min, unsigned, false)
BARACUDA_REDUCE(min, int, true)
BARACUDA_REDUCE(max, unsigned, false)
BARACUDA_REDUCE(max, int, true)
BARACUDA_REDUCE(and, unsigned, false)
BARACUDA_REDUCE(or, unsigned, false)
BARACUDA_REDUCE(xor, unsigned, false)
#undef BARACUDA_REDUCE
