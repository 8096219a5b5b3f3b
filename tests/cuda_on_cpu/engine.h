// What a kernel compiled for the CPU asks of the engine that runs it: who am I, wait for others, report a mistake.
//
// One OS thread runs a launch.  Each CUDA thread is a job; jobs run on fibres, and a fibre goes from job to job without a
// switch until one of them has to wait.  engine.cpp explains the scheduler.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headers/crt/host_defines.h"
#include "vector_types.h"

namespace baracuda_cpu {

constexpr unsigned kWarp = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxShared = 227 * 1024;

// A line of a kernel: operations that must be reached together are told apart by it in reports.
struct Site {
    const char* file;
    int line;
};

enum class Warp : int {  // Operations of a warp, by what the report calls them.
    sync, shuffle, ballot, any, all, match_any, match_all, reduce_add, reduce_min, reduce_max, reduce_and, reduce_or, reduce_xor
};
enum class Vote : int { none, any, all, count };

// Sixteen bytes that a lane hands to the others, and gets back.
struct alignas(16) Word {
    unsigned char bytes[16];
};

struct Entry {
    const char* name;
    void (*invoke)(void** parameters);  // Runs the kernel for the thread that is current.
    int parameter_count;
    const unsigned* parameter_sizes;
};

struct Launch {
    const Entry* entry;
    void** parameters;
    unsigned grid[3];
    unsigned block[3];
    unsigned cluster[3];
    unsigned shared_bytes;
    int cooperative;
    int strict;
    long long seed;  // Negative: threads run in order.
    double cpu_seconds;
    unsigned char* thread_local_anchor;  // Any thread_local object of the kernel's library.
    char* message;
    std::size_t message_bytes;
};

extern uint3 current_thread;
extern uint3 current_block;
extern dim3 block_extent;
extern dim3 grid_extent;
extern int atomics_left;  // The next turn of another thread comes when this reaches zero.

int block_barrier(Vote vote, int predicate, Site site);
void named_barrier(unsigned id, unsigned threads, Site site);

// Deposits `value`, waits for every lane of `mask`, and returns the deposit of `source` (for a shuffle).
Word shuffle(unsigned mask, const Word& value, unsigned source, Site site);
// Ballots, matches and reductions; returns the result, and whether all values were equal.
unsigned long long warp_collect(Warp what, unsigned mask, unsigned long long value, bool is_signed, Site site, int* all_equal);
unsigned lane();

void yield_turn();
void nap();  // __nanosleep: lets the other threads run.
[[noreturn]] void fail(const char* what, Site site);
unsigned long long ticks();

inline void count_atomic() {
    if (--atomics_left <= 0) yield_turn();
}

void cluster_arrive(Site site);
void cluster_wait(Site site);
unsigned cluster_rank();
unsigned cluster_size();
uint3 cluster_index();
void* cluster_map(void* own, unsigned rank, Site site);
void grid_barrier(Site site);

}  // namespace baracuda_cpu
