// CUDA C++ for g++: included ahead of a generated .cu, so that the very same file compiles for the CPU.
//
// `__CUDA_ARCH__` stays undefined.  A kernel that needs PTX writes `#if defined(__CUDA_ARCH__)` around it and calls
// something of this header in the other branch.
#ifndef BARACUDA_CPU_SHIM_H
#define BARACUDA_CPU_SHIM_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>
#include <utility>

#include "engine.h"

#include "cuda_bf16.h"
#include "cuda_fp16.h"

#include "shim_atomics.h"
#include "shim_cluster.h"
#include "shim_math.h"
#include "shim_memory.h"
#include "shim_warp.h"

#define threadIdx ::baracuda_cpu::current_thread
#define blockIdx ::baracuda_cpu::current_block
#define blockDim ::baracuda_cpu::block_extent
#define gridDim ::baracuda_cpu::grid_extent
constexpr int warpSize = 32;

// g++ takes the standard attribute in fewer places than nvcc does (`__shared__ alignas(16) float tile[64]`).
#define alignas(n) __attribute__((aligned(n)))

// Promises to the optimiser are checked here.
#define BARACUDA_HERE (::baracuda_cpu::Site{__FILE__, __LINE__})
#undef assert
#define assert(condition) ((condition) ? void() : ::baracuda_cpu::fail("assertion failed: " #condition, BARACUDA_HERE))
#define __builtin_assume(condition) ((condition) ? void() : ::baracuda_cpu::fail("assumption broken: " #condition, BARACUDA_HERE))
#define __builtin_unreachable() ::baracuda_cpu::fail("reached __builtin_unreachable()", BARACUDA_HERE)
#define __trap() ::baracuda_cpu::fail("__trap()", BARACUDA_HERE)
#define __nanosleep(ns) (static_cast<void>(ns), ::baracuda_cpu::nap())
#define clock64() static_cast<long long>(::baracuda_cpu::ticks())
#define __globaltimer() ::baracuda_cpu::ticks()

namespace baracuda_cpu {

// Calls a kernel with parameters given as cuLaunchKernel takes them: an array of pointers to values.
template <auto Kernel>
struct Invoker;

template <typename... Arguments, void (*Kernel)(Arguments...)>
struct Invoker<Kernel> {
    static constexpr unsigned sizes[sizeof...(Arguments) + 1] = {sizeof(Arguments)..., 0};

    static void invoke(void** parameters) { expand(parameters, std::index_sequence_for<Arguments...>{}); }

    static constexpr Entry entry(const char* name) { return Entry{name, &invoke, int{sizeof...(Arguments)}, sizes}; }

private:
    template <std::size_t... Index>
    static void expand([[maybe_unused]] void** parameters, std::index_sequence<Index...>) {
        Kernel(*static_cast<std::remove_cv_t<Arguments>*>(parameters[Index])...);
    }
};

}  // namespace baracuda_cpu

#endif  // BARACUDA_CPU_SHIM_H
