// Thread block clusters, under CUDA's own names, and what stands in for PTX without a CUDA name.
#pragma once

#include "engine.h"

inline void __cluster_barrier_arrive(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { baracuda_cpu::cluster_arrive({file, line}); }
inline void __cluster_barrier_arrive_relaxed(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    baracuda_cpu::cluster_arrive({file, line});
}
inline void __cluster_barrier_wait(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { baracuda_cpu::cluster_wait({file, line}); }
inline unsigned __clusterRelativeBlockRank() { return baracuda_cpu::cluster_rank(); }
inline unsigned __clusterSizeInBlocks() { return baracuda_cpu::cluster_size(); }
inline dim3 __clusterIdx() { return dim3(baracuda_cpu::cluster_index()); }
inline void* __cluster_map_shared_rank(const void* own, unsigned rank, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return baracuda_cpu::cluster_map(const_cast<void*>(own), rank, {file, line});
}

// `barrier.sync id, threads`.
inline void baracuda_named_barrier(unsigned id, unsigned threads, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    baracuda_cpu::named_barrier(id, threads, {file, line});
}
// A barrier of all threads of a cooperative launch.
inline void baracuda_grid_barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { baracuda_cpu::grid_barrier({file, line}); }
