// Loads and stores with a cache hint, and fences.  A hint changes no value, so each is a plain access of the type's size.
#pragma once

#include "engine.h"

#define BARACUDA_LOAD(name)           \
    template <typename T>             \
    inline T name(const T* address) { \
        return *address;              \
    }
#define BARACUDA_STORE(name)                  \
    template <typename T>                     \
    inline void name(T* address, T value) {   \
        *address = value;                     \
    }
BARACUDA_LOAD(__ldg)
BARACUDA_LOAD(__ldca)
BARACUDA_LOAD(__ldcg)
BARACUDA_LOAD(__ldcs)
BARACUDA_LOAD(__ldlu)
BARACUDA_LOAD(__ldcv)
BARACUDA_STORE(__stwb)
BARACUDA_STORE(__stcg)
BARACUDA_STORE(__stcs)
BARACUDA_STORE(__stwt)
#undef BARACUDA_LOAD
#undef BARACUDA_STORE

inline void __threadfence() {
    baracuda_cpu::count_atomic();  // A loop that waits for memory to change has a fence in it.
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
