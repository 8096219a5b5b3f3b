// Device arithmetic that is not in <math.h>: rounding conversions with CUDA's saturation, `*_rn` operations, bit tricks.
//
// The `__expf` family and rsqrt are the host's accurate functions: what the hardware's approximations do to accuracy
// can't be seen here.
#pragma once

#include <limits>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "engine.h"

namespace baracuda_cpu {

// Keeps a result from being contracted into a fused multiply-add, as the `*_rn` operations promise.
template <typename T>
inline T rounded(T value) {
#if defined(__x86_64__)
    __asm__("" : "+x"(value));
#elif defined(__aarch64__)
    __asm__("" : "+w"(value));
#endif
    return value;
}

// An already rounded value as an integer, as PTX cvt does: saturating; NaN gives 0, but the lowest value (the top bit, for
// an unsigned type) where either side has 64 bits.
template <typename Integer, typename Float>
inline Integer saturated(Float value) {
    using limits = std::numeric_limits<Integer>;
    constexpr bool wide = sizeof(Integer) == 8 || sizeof(Float) == 8;
    constexpr auto top_bit = static_cast<Integer>(1ULL << (sizeof(Integer) * 8 - 1));
    const Float past_end = static_cast<Float>(limits::max() / 2 + 1) * 2;
    if (value != value) return wide ? top_bit : Integer{0};
    if (value >= past_end) return limits::max();
    if (value <= static_cast<Float>(limits::min())) return limits::min();
    return static_cast<Integer>(value);
}

inline float narrowed(double value, bool up) {  // To the nearest float on one side.
    const float near = static_cast<float>(value);
    if (up) return near < value ? nextafterf(near, INFINITY) : near;
    return near > value ? nextafterf(near, -INFINITY) : near;
}

inline float fast_exp(float x) { return expf(x); }
inline float fast_exp10(float x) { return static_cast<float>(pow(10.0, x)); }
inline float fast_log(float x) { return logf(x); }
inline float fast_log2(float x) { return log2f(x); }
inline float fast_log10(float x) { return log10f(x); }
inline float fast_sin(float x) { return sinf(x); }
inline float fast_cos(float x) { return cosf(x); }
inline float fast_tan(float x) { return tanf(x); }
inline float fast_pow(float x, float y) { return powf(x, y); }
inline float inverse_sqrt(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline double inverse_sqrt(double x) { return 1.0 / sqrt(x); }

}  // namespace baracuda_cpu

// Macros, because the C library declares functions of these names.
#define __expf(x) ::baracuda_cpu::fast_exp(x)
#define __exp10f(x) ::baracuda_cpu::fast_exp10(x)
#define __logf(x) ::baracuda_cpu::fast_log(x)
#define __log2f(x) ::baracuda_cpu::fast_log2(x)
#define __log10f(x) ::baracuda_cpu::fast_log10(x)
#define __sinf(x) ::baracuda_cpu::fast_sin(x)
#define __cosf(x) ::baracuda_cpu::fast_cos(x)
#define __tanf(x) ::baracuda_cpu::fast_tan(x)
#define __powf(x, y) ::baracuda_cpu::fast_pow(x, y)
#define rsqrtf(x) ::baracuda_cpu::inverse_sqrt(static_cast<float>(x))
#define rsqrt(x) ::baracuda_cpu::inverse_sqrt(x)
inline float __fdividef(float x, float y) { return x / y; }
inline float __frsqrt_rn(float x) { return ::baracuda_cpu::inverse_sqrt(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

inline float __fadd_rn(float x, float y) { return baracuda_cpu::rounded(x + y); }
inline float __fsub_rn(float x, float y) { return baracuda_cpu::rounded(x - y); }
inline float __fmul_rn(float x, float y) { return baracuda_cpu::rounded(x * y); }
inline float __fdiv_rn(float x, float y) { return baracuda_cpu::rounded(x / y); }
inline float __frcp_rn(float x) { return baracuda_cpu::rounded(1.0f / x); }
inline float __fsqrt_rn(float x) { return baracuda_cpu::rounded(sqrtf(x)); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return baracuda_cpu::rounded(x + y); }
inline double __dsub_rn(double x, double y) { return baracuda_cpu::rounded(x - y); }
inline double __dmul_rn(double x, double y) { return baracuda_cpu::rounded(x * y); }
inline double __ddiv_rn(double x, double y) { return baracuda_cpu::rounded(x / y); }
inline double __drcp_rn(double x) { return baracuda_cpu::rounded(1.0 / x); }
inline double __dsqrt_rn(double x) { return baracuda_cpu::rounded(sqrt(x)); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

#define BARACUDA_TO_INTEGER(from, from_name, to, to_name)                                                                       \
    inline to __##from_name##2##to_name##_rn(from x) { return baracuda_cpu::saturated<to>(static_cast<from>(rint(x))); }       \
    inline to __##from_name##2##to_name##_rz(from x) { return baracuda_cpu::saturated<to>(static_cast<from>(trunc(x))); }      \
    inline to __##from_name##2##to_name##_rd(from x) { return baracuda_cpu::saturated<to>(static_cast<from>(floor(x))); }      \
    inline to __##from_name##2##to_name##_ru(from x) { return baracuda_cpu::saturated<to>(static_cast<from>(ceil(x))); }       \
    inline from __##to_name##2##from_name##_rn(to x) { return static_cast<from>(x); }
BARACUDA_TO_INTEGER(float, float, int, int)
BARACUDA_TO_INTEGER(float, float, unsigned, uint)
BARACUDA_TO_INTEGER(float, float, long long, ll)
BARACUDA_TO_INTEGER(float, float, unsigned long long, ull)
BARACUDA_TO_INTEGER(double, double, int, int)
BARACUDA_TO_INTEGER(double, double, unsigned, uint)
BARACUDA_TO_INTEGER(double, double, long long, ll)
BARACUDA_TO_INTEGER(double, double, unsigned long long, ull)
#undef BARACUDA_TO_INTEGER

inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline float __double2float_ru(double x) { return baracuda_cpu::narrowed(x, true); }
inline float __double2float_rd(double x) { return baracuda_cpu::narrowed(x, false); }
inline float __double2float_rz(double x) { return baracuda_cpu::narrowed(x, x < 0); }

// The integer conversions of the 16-bit types that their headers keep for the device.
#define BARACUDA_HALF_TO_INTEGER(type, name, to_float, to, to_name)                                          \
    inline to __##name##2##to_name##_rn(type x) { return __float2##to_name##_rn(to_float(x)); }              \
    inline to __##name##2##to_name##_rd(type x) { return __float2##to_name##_rd(to_float(x)); }              \
    inline to __##name##2##to_name##_ru(type x) { return __float2##to_name##_ru(to_float(x)); }
BARACUDA_HALF_TO_INTEGER(__half, half, __half2float, int, int)
BARACUDA_HALF_TO_INTEGER(__half, half, __half2float, unsigned, uint)
BARACUDA_HALF_TO_INTEGER(__half, half, __half2float, long long, ll)
BARACUDA_HALF_TO_INTEGER(__nv_bfloat16, bfloat16, __bfloat162float, int, int)
BARACUDA_HALF_TO_INTEGER(__nv_bfloat16, bfloat16, __bfloat162float, unsigned, uint)
BARACUDA_HALF_TO_INTEGER(__nv_bfloat16, bfloat16, __bfloat162float, long long, ll)
#undef BARACUDA_HALF_TO_INTEGER

#define BARACUDA_HALF_FUNCTION(name, expression)                                                    \
    inline __half name(__half half) {                                                               \
        const float x = __half2float(half);                                                         \
        return __float2half_rn(static_cast<float>(expression));                                     \
    }                                                                                               \
    inline __nv_bfloat16 name(__nv_bfloat16 half) {                                                 \
        const float x = __bfloat162float(half);                                                     \
        return __float2bfloat16_rn(static_cast<float>(expression));                                 \
    }
BARACUDA_HALF_FUNCTION(htrunc, truncf(x))
BARACUDA_HALF_FUNCTION(hceil, ceilf(x))
BARACUDA_HALF_FUNCTION(hfloor, floorf(x))
BARACUDA_HALF_FUNCTION(hrint, rintf(x))
BARACUDA_HALF_FUNCTION(hsqrt, sqrtf(x))
BARACUDA_HALF_FUNCTION(hrsqrt, 1.0 / sqrt(static_cast<double>(x)))
BARACUDA_HALF_FUNCTION(hrcp, 1.0f / x)
BARACUDA_HALF_FUNCTION(hexp, expf(x))
BARACUDA_HALF_FUNCTION(hexp2, exp2f(x))
BARACUDA_HALF_FUNCTION(hlog, logf(x))
BARACUDA_HALF_FUNCTION(hlog2, log2f(x))
#undef BARACUDA_HALF_FUNCTION

#define BARACUDA_AS(name, to, from)                              \
    inline to name(from x) {                                     \
        static_assert(sizeof(to) == sizeof(from), "same size");  \
        to result;                                               \
        memcpy(&result, &x, sizeof x);                           \
        return result;                                           \
    }
BARACUDA_AS(__float_as_int, int, float)
BARACUDA_AS(__float_as_uint, unsigned, float)
BARACUDA_AS(__int_as_float, float, int)
BARACUDA_AS(__uint_as_float, float, unsigned)
BARACUDA_AS(__double_as_longlong, long long, double)
BARACUDA_AS(__longlong_as_double, double, long long)
#undef BARACUDA_AS
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
    return __longlong_as_double(static_cast<long long>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 | static_cast<unsigned>(low)));
}

inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32); }
inline long long __mul64hi(long long x, long long y) { return static_cast<long long>(static_cast<__int128>(x) * y >> 64); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int i = 0; i < 32; ++i) result |= (x >> i & 1u) << (31 - i);
    return result;
}
inline unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 | __brev(static_cast<unsigned>(x >> 32));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned pick = selector >> 4 * i & 0xFu;
        unsigned byte = static_cast<unsigned>(both >> 8 * (pick & 7u)) & 0xFFu;
        if (pick & 8u) byte = byte & 0x80u ? 0xFFu : 0u;
        result |= byte << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31u) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31u));
}
inline int __dp4a(int x, int y, int sum) {
    for (int i = 0; i < 4; ++i) sum += static_cast<signed char>(x >> 8 * i) * static_cast<signed char>(y >> 8 * i);
    return sum;
}

// min and max of device code: integers of one type, or of mixed signs, which compare as unsigned; floats drop a NaN.
#define BARACUDA_MIN_MAX(result, left, right)                                                             \
    inline result min(left a, right b) {                                                                  \
        const result x = static_cast<result>(a), y = static_cast<result>(b);                              \
        return x < y ? x : y;                                                                             \
    }                                                                                                     \
    inline result max(left a, right b) {                                                                  \
        const result x = static_cast<result>(a), y = static_cast<result>(b);                              \
        return x > y ? x : y;                                                                             \
    }
BARACUDA_MIN_MAX(int, int, int)
BARACUDA_MIN_MAX(unsigned, unsigned, unsigned)
BARACUDA_MIN_MAX(unsigned, int, unsigned)
BARACUDA_MIN_MAX(unsigned, unsigned, int)
BARACUDA_MIN_MAX(long, long, long)
BARACUDA_MIN_MAX(unsigned long, unsigned long, unsigned long)
BARACUDA_MIN_MAX(unsigned long, long, unsigned long)
BARACUDA_MIN_MAX(unsigned long, unsigned long, long)
BARACUDA_MIN_MAX(long long, long long, long long)
BARACUDA_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
BARACUDA_MIN_MAX(unsigned long long, long long, unsigned long long)
BARACUDA_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef BARACUDA_MIN_MAX
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }
inline double min(float x, double y) { return fmin(static_cast<double>(x), y); }
inline double max(float x, double y) { return fmax(static_cast<double>(x), y); }
inline double min(double x, float y) { return fmin(x, static_cast<double>(y)); }
inline double max(double x, float y) { return fmax(x, static_cast<double>(y)); }
