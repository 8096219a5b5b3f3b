// CUDA's keywords as a C++ compiler for the CPU must read them.
//
// Stands in for the toolkit's header of this name: pip's runtime wheel lacks it, and where it is present its guard,
// defined here, keeps it out.
#pragma once
#define __HOST_DEFINES_H__

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __block_size__(...)
#define __cluster_dims__(...)
#define __inline_hint__
#define __no_return__ __attribute__((noreturn))
#define __nv_pure__
#define __annotate__(...)
#define __location__(...)
#define __specialization_static
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define CUDARTAPI
#define CUDARTAPI_CDECL
// At block scope thread_local means static storage and, unlike `static`, goes together with `extern`.
#define __shared__ thread_local
