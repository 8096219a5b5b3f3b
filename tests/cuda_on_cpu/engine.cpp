// Runs CUDA thread blocks on one CPU thread.
//
// Jobs.  Each CUDA thread is a job.  A fibre that finishes a job takes the next fresh one itself, so a kernel without
// barriers never switches stacks.  A job that has to wait gives the CPU to the next ready one directly; the launch's own
// stack runs again only when nothing is ready.
//
// Waiting.  A barrier completes when the last thread it needs arrives; that thread makes the others ready.  When nothing is
// ready and threads still wait, the launch fails with a list of who waits where.
//
// Blocks.  The blocks of a cluster (of the whole grid, for a cooperative launch) form a gang and are alive together.  Shared
// variables are thread_local objects of the kernel's library, so there is one image of them; a switch to another block of
// the gang copies the image out and the other block's in.  What another block sees through `cluster_map` is the saved image.
//
// Order.  With a seed, which block runs next, which thread starts next and which waiting thread resumes are all drawn at
// random; a kernel with the right barriers gives the same result in every order.
#include "engine.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fibres.h"

// Dynamic shared memory.  The second name is what g++ makes of a block-scope `extern` in an unnamed namespace.
alignas(1024) thread_local unsigned char baracuda_smem[baracuda_cpu::kMaxShared];
extern thread_local unsigned char baracuda_smem_in_unnamed_namespace[] __asm__("_ZN12_GLOBAL__N_113baracuda_smemE")
    __attribute__((alias("baracuda_smem")));

namespace baracuda_cpu {

uint3 current_thread;
uint3 current_block;
dim3 block_extent;
dim3 grid_extent;
int atomics_left;

constexpr unsigned kMaxGang = 16384;  // Threads alive together.
constexpr int kAtomicsPerTurn = 4096;  // A thread that only spins must let the others run.
constexpr int kAtomicsPerIdleTurn = 16;
constexpr unsigned kNamedBarriers = 16;

enum class State : unsigned char { fresh, ready, running, waiting, done };
enum class Wait : unsigned char { none, block, named, warp, cluster, grid };

struct Block;

struct Job {  // One CUDA thread.
    Block* block;
    Fibre* fibre;
    uint3 index;
    unsigned lane, warp;
    State state;
    Wait wait;
    Site site;
    unsigned mask, source;
    unsigned cluster_phase;
    bool cluster_arrived;
    unsigned long long value;
    int equal;
    Word deposit, result;
};

struct WarpGroup {  // Lanes that have come to one warp operation.
    unsigned mask, arrived;
    Warp what;
    Site site;
};

struct WarpState {
    unsigned gone;  // Lanes that have exited or never existed.
    unsigned groups;
    WarpGroup group[kWarp];
};

struct Barrier {  // Of a block.
    unsigned arrived = 0, wanted = 0;
    Vote vote = Vote::none;
    Site site{};
    int tally = 0, result = 0;
};

struct GangBarrier {  // Of a cluster or a grid.
    unsigned arrived = 0, alive = 0, phase = 0;
};

struct Cluster {
    GangBarrier barrier;
    uint3 index{};
    std::vector<Block*> blocks;
};

struct Block {
    uint3 index{};
    Cluster* cluster = nullptr;
    unsigned rank = 0;
    unsigned alive = 0;
    std::vector<Job> jobs;
    std::vector<WarpState> warps;
    Barrier barrier, named[kNamedBarriers];
    std::vector<Job*> ready;  // A ring with room for every job: `ready_count` of them from `ready_head`.
    std::size_t ready_head = 0, ready_count = 0;
    unsigned idle_turns = 0;  // Turns given up since the last progress.
    unsigned char* image = nullptr;  // Shared memory while another block of the gang runs.
    std::vector<unsigned char> image_store;
};

struct Engine {
    const Launch* launch = nullptr;
    Fibres fibres;
    std::vector<Block*> pool;     // Blocks are kept from launch to launch.
    std::vector<Block*> gang;
    std::vector<Cluster> clusters;
    GangBarrier grid;
    Block* resident = nullptr;    // Whose shared memory is in place.
    std::size_t turn = 0;
    unsigned threads = 0;
    unsigned char* statics = nullptr;
    std::size_t static_bytes = 0;
    bool failed = false;
    bool shuffled = false;
    std::uint64_t random = 0;
    unsigned long long progress = 0, progress_seen = 0, idle_turns = 0;
    bool turn_over = false;       // The resident block spins: let another one run.
    sigset_t mask_before{};
};

Engine engine;

std::uint64_t draw() {  // xorshift64*
    engine.random ^= engine.random >> 12;
    engine.random ^= engine.random << 25;
    engine.random ^= engine.random >> 27;
    return engine.random * 0x2545F4914F6CDD1DULL;
}

std::size_t draw_below(std::size_t count) { return static_cast<std::size_t>((draw() >> 11) % count); }

// ---------------------------------------------------------------------------------------------------------- messages

void append(const char* format, ...) __attribute__((format(printf, 1, 2)));

void append(const char* format, ...) {
    const Launch& launch = *engine.launch;
    const std::size_t used = std::strlen(launch.message);
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(launch.message + used, launch.message_bytes - used, format, arguments);
    va_end(arguments);
}

const char* file_name(Site site) {
    const char* slash = std::strrchr(site.file, '/');
    return slash ? slash + 1 : site.file;
}

void append_job(const Job& job) {
    append("block (%u,%u,%u) thread (%u,%u,%u)", job.block->index.x, job.block->index.y, job.block->index.z, job.index.x, job.index.y,
           job.index.z);
}

const char* warp_name(Warp what) {
    static const char* const names[] = {"__syncwarp", "__shfl_sync", "__ballot_sync", "__any_sync", "__all_sync", "__match_any_sync",
                                        "__match_all_sync", "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
                                        "__reduce_and_sync", "__reduce_or_sync", "__reduce_xor_sync"};
    return names[static_cast<int>(what)];
}

const char* vote_name(Vote vote) {
    static const char* const names[] = {"__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count"};
    return names[static_cast<int>(vote)];
}

// --------------------------------------------------------------------------------------------------------- scheduler

void push_ready(Block& block, Job& job) {
    std::size_t at = block.ready_head + block.ready_count++;
    if (at >= block.ready.size()) at -= block.ready.size();
    block.ready[at] = &job;
}

void make_ready(Job& job) {
    job.state = State::ready;
    job.wait = Wait::none;
    push_ready(*job.block, job);
}

bool has_ready(const Block& block) { return block.ready_count != 0; }

Job& take_ready(Block& block) {
    const std::size_t size = block.ready.size();
    if (engine.shuffled) std::swap(block.ready[block.ready_head], block.ready[(block.ready_head + draw_below(block.ready_count)) % size]);
    Job& job = *block.ready[block.ready_head];
    if (++block.ready_head == size) block.ready_head = 0;
    --block.ready_count;
    return job;
}

// The next job to run, or null when none is ready.  Stays with the resident block while it can.
Job* next_job() {
    const bool wander = engine.shuffled && engine.gang.size() > 1 && draw_below(16) == 0;
    const bool stay = !wander && !engine.turn_over;
    engine.turn_over = false;
    if (stay && engine.resident && has_ready(*engine.resident)) return &take_ready(*engine.resident);
    const std::size_t count = engine.gang.size();
    const std::size_t start = engine.shuffled ? draw_below(count) : engine.turn + 1;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = (start + i) % count;
        if (has_ready(*engine.gang[at])) {
            engine.turn = at;
            return &take_ready(*engine.gang[at]);
        }
    }
    return nullptr;
}

void copy_image(unsigned char* to_statics, const unsigned char* from_statics, unsigned char* to_dynamic, const unsigned char* from_dynamic) {
    std::memcpy(to_statics, from_statics, engine.static_bytes);
    std::memcpy(to_dynamic, from_dynamic, engine.launch->shared_bytes);
}

// The saved image: dynamic shared memory first, then the static variables.
std::size_t statics_offset() { return (engine.launch->shared_bytes + 127) / 128 * 128; }
std::size_t image_bytes() { return statics_offset() + engine.static_bytes; }
unsigned char* image_of_statics(const Block& block) { return block.image + statics_offset(); }

void make_resident(Block& block) {
    if (engine.resident == &block) return;
    if (engine.gang.size() > 1) {
        if (engine.resident && engine.resident->alive != 0)
            copy_image(image_of_statics(*engine.resident), engine.statics, engine.resident->image, baracuda_smem);
        else if (engine.resident)
            std::memset(engine.resident->image, 0xFF, image_bytes());  // Its shared memory is gone.
        copy_image(engine.statics, image_of_statics(block), baracuda_smem, block.image);
    }
    engine.resident = &block;
    current_block = block.index;
}

void enter(Job& job) {  // The job is about to run on the current fibre.
    make_resident(*job.block);
    current_thread = job.index;
    atomics_left = engine.shuffled ? 1 + static_cast<int>(draw_below(8)) : engine.idle_turns == 0 ? kAtomicsPerTurn : kAtomicsPerIdleTurn;
    job.state = State::running;
}

// Gives the CPU to the next ready job, or to the launch's own stack.  Returns when this fibre is chosen again.
void give_way() {
    Job* job = engine.failed ? nullptr : next_job();
    if (job == nullptr) {
        engine.fibres.switch_to(engine.fibres.home);
        return;
    }
    if (job->fibre == nullptr) {
        Fibre& fibre = engine.fibres.take();
        fibre.job = job;
        job->fibre = &fibre;
    }
    if (job->fibre != engine.fibres.current) engine.fibres.switch_to(*job->fibre);
}

Job& self() { return *engine.fibres.current->job; }

void wait_here(Job& job, Wait wait, Site site) {
    job.state = State::waiting;
    job.wait = wait;
    job.site = site;
    give_way();
    enter(job);
}

[[noreturn]] void stop() {
    engine.failed = true;
    for (;;) engine.fibres.switch_to(engine.fibres.home);
}

void begin_failure(Job& job, Site site) {
    append_job(job);
    if (site.file) append(" at %s:%d", file_name(site), site.line);
    append(": ");
}

// ---------------------------------------------------------------------------------------------------------- barriers

void release(Block& block, Wait wait, const Barrier* barrier) {
    ++engine.progress;
    for (Job& job : block.jobs)
        if (job.state == State::waiting && job.wait == wait && (wait == Wait::block || &block.named[job.source] == barrier)) {
            job.value = static_cast<unsigned long long>(barrier->result);
            make_ready(job);
        }
}

void complete(Block& block) {
    Barrier& barrier = block.barrier;
    const int alive = static_cast<int>(barrier.arrived);
    barrier.result = barrier.vote == Vote::any   ? barrier.tally != 0
                     : barrier.vote == Vote::all ? barrier.tally == alive
                                                 : barrier.tally;
    barrier.arrived = 0;
    barrier.tally = 0;
}

void gang_passed(GangBarrier& barrier, Wait wait, const Cluster* cluster) {
    ++engine.progress;
    ++barrier.phase;
    barrier.arrived = 0;
    for (Block* block : engine.gang)
        if (cluster == nullptr || block->cluster == cluster)
            for (Job& job : block->jobs)
                if (job.state == State::waiting && job.wait == wait) make_ready(job);
}

unsigned long long as_signed_order(unsigned long long value, bool is_signed) { return is_signed ? value ^ 0x80000000ULL : value; }

// Every lane of the group has come: work out what each of them gets.
void finish_group(Block& block, unsigned warp, const WarpGroup& group, bool is_signed) {
    ++engine.progress;
    Job* const lanes = &block.jobs[warp * kWarp];
    unsigned long long outcome = 0;
    int equal = 1;
    const unsigned present = group.mask & group.arrived;
    const unsigned first = static_cast<unsigned>(__builtin_ctz(present));
    if (group.what != Warp::sync && group.what != Warp::shuffle) {
        unsigned ballot = 0;
        outcome = lanes[first].value;
        for (unsigned rest = present; rest != 0; rest &= rest - 1) {
            const unsigned at = static_cast<unsigned>(__builtin_ctz(rest));
            const unsigned long long value = lanes[at].value;
            if (value != 0) ballot |= 1u << at;
            if (value != lanes[first].value) equal = 0;
            if (at == first) continue;
            switch (group.what) {
                case Warp::reduce_add: outcome = static_cast<unsigned>(outcome + value); break;
                case Warp::reduce_min:
                    if (as_signed_order(value, is_signed) < as_signed_order(outcome, is_signed)) outcome = value;
                    break;
                case Warp::reduce_max:
                    if (as_signed_order(value, is_signed) > as_signed_order(outcome, is_signed)) outcome = value;
                    break;
                case Warp::reduce_and: outcome &= value; break;
                case Warp::reduce_or: outcome |= value; break;
                case Warp::reduce_xor: outcome ^= value; break;
                default: break;
            }
        }
        if (group.what == Warp::ballot) outcome = ballot;
        if (group.what == Warp::any) outcome = ballot != 0;
        if (group.what == Warp::all) outcome = ballot == present;
        if (group.what == Warp::match_all) outcome = equal ? present : 0;
    }
    for (unsigned rest = present; rest != 0; rest &= rest - 1) {
        Job& job = lanes[__builtin_ctz(rest)];
        if (group.what == Warp::shuffle) {
            if (present >> job.source & 1u)
                job.result = lanes[job.source].deposit;
            else
                std::memset(job.result.bytes, 0xFF, sizeof job.result);  // Undefined: make it show.
        }
        if (group.what == Warp::match_any) {
            outcome = 0;
            for (unsigned others = present; others != 0; others &= others - 1) {
                const unsigned at = static_cast<unsigned>(__builtin_ctz(others));
                if (lanes[at].value == job.value) outcome |= 1ULL << at;
            }
            job.mask = static_cast<unsigned>(outcome);  // Other lanes still compare with `value`.
        }
        job.equal = equal;
    }
    for (unsigned rest = present; rest != 0; rest &= rest - 1) {
        Job& job = lanes[__builtin_ctz(rest)];
        job.value = group.what == Warp::match_any ? job.mask : outcome;
        if (job.state == State::waiting) make_ready(job);
    }
}

// Joins the calling thread to a warp operation and returns when all lanes of the mask have.
void meet(Job& job, Warp what, unsigned mask, bool is_signed, Site site) {
    WarpState& warp = job.block->warps[job.warp];
    if ((mask >> job.lane & 1u) == 0) {
        begin_failure(job, site);
        append("%s with mask 0x%08x, which leaves out the calling lane %u", warp_name(what), mask, job.lane);
        stop();
    }
    const bool ignores_gone = what == Warp::sync && !engine.launch->strict;
    if ((mask & warp.gone) != 0 && !ignores_gone) {
        begin_failure(job, site);
        append("%s with mask 0x%08x names lanes 0x%08x, which have exited or do not exist", warp_name(what), mask, mask & warp.gone);
        stop();
    }
    WarpGroup* group = nullptr;
    for (unsigned i = 0; i < warp.groups && group == nullptr; ++i)
        if (warp.group[i].mask == mask) group = &warp.group[i];
    if (group == nullptr) {
        group = &warp.group[warp.groups++];
        *group = WarpGroup{mask, 0, what, site};
    } else if (group->what != what || group->site.line != site.line) {
        begin_failure(job, site);
        append("%s with mask 0x%08x meets %s of lanes 0x%08x at %s:%d", warp_name(what), mask, warp_name(group->what), group->arrived,
               file_name(group->site), group->site.line);
        stop();
    }
    group->arrived |= 1u << job.lane;
    if (((group->arrived | warp.gone) & mask) == mask) {
        const WarpGroup done = *group;
        *group = warp.group[--warp.groups];
        finish_group(*job.block, job.warp, done, is_signed);
    } else {
        wait_here(job, Wait::warp, site);
    }
}

// A thread has returned from the kernel: barriers no longer wait for it.
void leave(Job& job) {
    ++engine.progress;
    Block& block = *job.block;
    job.state = State::done;
    job.fibre = nullptr;
    --block.alive;
    WarpState& warp = block.warps[job.warp];
    warp.gone |= 1u << job.lane;
    for (unsigned i = 0; i < warp.groups; ++i) {
        const WarpGroup group = warp.group[i];
        if ((group.mask >> job.lane & 1u) == 0) continue;
        if (group.what != Warp::sync || engine.launch->strict) {
            begin_failure(job, Site{nullptr, 0});
            append("has exited while lanes 0x%08x wait for it in %s with mask 0x%08x at %s:%d", group.arrived, warp_name(group.what),
                   group.mask, file_name(group.site), group.site.line);
            engine.failed = true;
            return;
        }
        if (((group.arrived | warp.gone) & group.mask) == group.mask) {
            warp.group[i--] = warp.group[--warp.groups];
            finish_group(block, job.warp, group, false);
        }
    }
    Barrier& barrier = block.barrier;
    if (barrier.arrived != 0 && engine.launch->strict) {
        begin_failure(job, Site{nullptr, 0});
        append("has exited while %u threads wait for it in %s at %s:%d", barrier.arrived, vote_name(barrier.vote), file_name(barrier.site),
               barrier.site.line);
        engine.failed = true;
        return;
    }
    if (barrier.arrived != 0 && barrier.arrived == block.alive) {
        complete(block);
        release(block, Wait::block, &barrier);
    }
    GangBarrier& cluster = block.cluster->barrier;
    --cluster.alive;
    if (job.cluster_arrived && job.cluster_phase == cluster.phase) --cluster.arrived;
    if (cluster.arrived != 0 && cluster.arrived == cluster.alive) gang_passed(cluster, Wait::cluster, block.cluster);
    --engine.grid.alive;
    if (engine.grid.arrived != 0 && engine.grid.arrived == engine.grid.alive) gang_passed(engine.grid, Wait::grid, nullptr);
}

void fibre_main() {
    engine.fibres.arrived();
    Fibre& me = *engine.fibres.current;
    for (;;) {
        Job& job = *me.job;
        enter(job);
        engine.launch->entry->invoke(engine.launch->parameters);
        leave(job);
        Job* next = engine.failed ? nullptr : next_job();
        if (next != nullptr && next->fibre == nullptr) {
            me.job = next;
            next->fibre = &me;
            continue;
        }
        me.job = nullptr;
        engine.fibres.give(me);
        engine.fibres.switch_to(next ? *next->fibre : engine.fibres.home);
    }
}

// ------------------------------------------------------------------------------------------------------- the launch

void prepare(Block& block, uint3 index, Cluster& cluster, unsigned rank) {
    const unsigned threads = engine.threads;
    block.index = index;
    block.cluster = &cluster;
    block.rank = rank;
    block.alive = threads;
    block.barrier = Barrier{};
    for (Barrier& barrier : block.named) barrier = Barrier{};
    if (block.jobs.size() != threads) {
        block.jobs.assign(threads, Job{});
        block.warps.assign((threads + kWarp - 1) / kWarp, WarpState{});
        block.ready.resize(threads);
    }
    uint3 at = {0, 0, 0};
    for (unsigned i = 0; i < threads; ++i) {
        Job& job = block.jobs[i];
        job.block = &block;
        job.fibre = nullptr;
        job.index = at;
        job.lane = i % kWarp;
        job.warp = i / kWarp;
        job.state = State::fresh;
        job.wait = Wait::none;
        job.cluster_arrived = false;
        job.cluster_phase = 0;
        if (++at.x == block_extent.x) {
            at.x = 0;
            if (++at.y == block_extent.y) at.y = 0, ++at.z;
        }
    }
    for (WarpState& warp : block.warps) warp.gone = warp.groups = 0;
    if (threads % kWarp != 0) block.warps.back().gone = ~0u << threads % kWarp;
    block.ready_head = block.ready_count = 0;
    block.idle_turns = 0;
    for (Job& job : block.jobs) push_ready(block, job);
    cluster.blocks.push_back(&block);
    cluster.barrier.alive += threads;
    engine.grid.alive += threads;
}

void report_deadlock() {
    append("no thread can go on:");
    int shown = 0;
    for (Block* block : engine.gang) {
        std::vector<const Job*> heads;
        std::vector<unsigned> counts;
        unsigned done = 0;
        for (const Job& job : block->jobs) {
            if (job.state == State::done) ++done;
            if (job.state != State::waiting) continue;
            std::size_t at = 0;
            while (at < heads.size() && !(heads[at]->wait == job.wait && heads[at]->site.line == job.site.line &&
                                          (job.wait != Wait::warp || heads[at]->warp == job.warp)))
                ++at;
            if (at == heads.size()) {
                heads.push_back(&job);
                counts.push_back(0);
            }
            ++counts[at];
        }
        if (heads.empty() || ++shown > 4) continue;
        append("\n  block (%u,%u,%u): %u threads have exited", block->index.x, block->index.y, block->index.z, done);
        for (std::size_t i = 0; i < heads.size() && i < 8; ++i) {
            const Job& job = *heads[i];
            append("; %u wait in ", counts[i]);
            if (job.wait == Wait::block) append("%s", vote_name(block->barrier.vote));
            if (job.wait == Wait::named) append("named barrier %u (%u of %u came)", job.source, block->named[job.source].arrived, block->named[job.source].wanted);
            if (job.wait == Wait::cluster) append("a cluster barrier");
            if (job.wait == Wait::grid) append("a grid barrier");
            if (job.wait == Wait::warp)
                for (unsigned g = 0; g < block->warps[job.warp].groups; ++g) {
                    const WarpGroup& group = block->warps[job.warp].group[g];
                    if (group.arrived >> job.lane & 1u)
                        append("%s of warp %u, mask 0x%08x, lanes 0x%08x missing", warp_name(group.what), job.warp, group.mask,
                               group.mask & ~group.arrived);
                }
            append(" at %s:%d (first: thread (%u,%u,%u))", file_name(job.site), job.site.line, job.index.x, job.index.y, job.index.z);
        }
    }
}

void run_gang() {
    engine.resident = nullptr;
    engine.turn = engine.gang.size() - 1;
    if (engine.gang.size() > 1) {
        for (Block* block : engine.gang) {
            block->image_store.assign(image_bytes() + 128, 0xFF);
            const auto address = reinterpret_cast<std::uintptr_t>(block->image_store.data());
            block->image = block->image_store.data() + (128 - address % 128) % 128;
        }
    } else {
        std::memset(engine.statics, 0xFF, engine.static_bytes);
        std::memset(baracuda_smem, 0xFF, engine.launch->shared_bytes);
    }
    while (!engine.failed) {
        Job* job = next_job();
        if (job == nullptr) break;
        Fibre& fibre = job->fibre ? *job->fibre : engine.fibres.take();
        fibre.job = job;
        job->fibre = &fibre;
        engine.fibres.switch_to(fibre);
    }
    if (engine.failed || engine.grid.alive == 0) return;
    engine.failed = true;
    report_deadlock();
}

struct Segment {
    std::uintptr_t inside;
    unsigned char* begin;
    std::size_t bytes;
};

// The thread_local image of the library that holds `anchor`: its static shared variables.
void find_statics(unsigned char* anchor) {
    Segment segment{reinterpret_cast<std::uintptr_t>(anchor), nullptr, 0};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) -> int {
            auto& wanted = *static_cast<Segment*>(data);
            const auto start = reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data);
            if (start == 0) return 0;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
                if (wanted.inside < start || wanted.inside >= start + info->dlpi_phdr[i].p_memsz) continue;
                wanted.begin = static_cast<unsigned char*>(info->dlpi_tls_data);
                wanted.bytes = info->dlpi_phdr[i].p_memsz;
                return 1;
            }
            return 0;
        },
        &segment);
    engine.statics = segment.begin;
    engine.static_bytes = segment.bytes;
}

// A crash inside a kernel becomes a failed launch: leave the handler by switching to the launch's own stack.
void on_signal(int number) {
    if (engine.fibres.current == &engine.fibres.home) {  // Not in a kernel.  A crash is ours, and happens again; the timer rings again.
        if (number != SIGVTALRM) signal(number, SIG_DFL);
        return;
    }
    if (Job* job = engine.fibres.current->job) {
        append_job(*job);
        append(": ");
    }
    append("%s", number == SIGSEGV  ? "illegal or misaligned address, or stack overflow (SIGSEGV)"
                 : number == SIGBUS ? "misaligned or unmapped address (SIGBUS)"
                 : number == SIGFPE ? "integer division by zero or overflow (SIGFPE)"
                 : number == SIGILL ? "trap (SIGILL)"
                                    : "the launch ran out of its CPU time: an endless loop?");
    stop();
}

class Signals {
public:
    Signals() {
        static thread_local unsigned char stack[64 * 1024];
        stack_t alternate{};
        alternate.ss_sp = stack;
        alternate.ss_size = sizeof stack;
        sigaltstack(&alternate, &stack_before_);
        struct sigaction action {};
        action.sa_handler = on_signal;
        action.sa_flags = SA_ONSTACK;
        for (int i = 0; i < kCount; ++i) sigaction(kNumbers[i], &action, &before_[i]);
        sigprocmask(SIG_SETMASK, nullptr, &engine.mask_before);
        sigevent event{};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = SIGVTALRM;
        event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
        armed_ = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) == 0;
        itimerspec limit{};
        limit.it_value.tv_sec = static_cast<time_t>(engine.launch->cpu_seconds);
        limit.it_value.tv_nsec = static_cast<long>((engine.launch->cpu_seconds - static_cast<double>(limit.it_value.tv_sec)) * 1e9);
        limit.it_interval.tv_nsec = 10000000;
        if (armed_) timer_settime(timer_, 0, &limit, nullptr);
    }
    ~Signals() {
        if (armed_) timer_delete(timer_);
        for (int i = 0; i < kCount; ++i) sigaction(kNumbers[i], &before_[i], nullptr);
        sigprocmask(SIG_SETMASK, &engine.mask_before, nullptr);
        sigaltstack(&stack_before_, nullptr);
    }
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

private:
#if defined(__SANITIZE_ADDRESS__)
    static constexpr int kCount = 1;  // The sanitizer reports crashes better.
#else
    static constexpr int kCount = 5;
#endif
    static constexpr int kNumbers[5] = {SIGVTALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction before_[5];
    stack_t stack_before_{};
    timer_t timer_{};
    bool armed_ = false;
};

bool check(const Launch& launch) {
    const unsigned long long threads = 1ULL * launch.block[0] * launch.block[1] * launch.block[2];
    const unsigned long long cluster = 1ULL * launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
    const unsigned long long blocks = 1ULL * launch.grid[0] * launch.grid[1] * launch.grid[2];
    if (blocks == 0 || launch.grid[0] > 0x7FFFFFFFu || launch.grid[1] > 65535 || launch.grid[2] > 65535)
        append("grid (%u,%u,%u) is not within (1..2147483647, 1..65535, 1..65535)", launch.grid[0], launch.grid[1], launch.grid[2]);
    else if (threads == 0 || launch.block[0] > 1024 || launch.block[1] > 1024 || launch.block[2] > 64 || threads > kMaxThreads)
        append("block (%u,%u,%u) is not within (1..1024, 1..1024, 1..64) and 1024 threads", launch.block[0], launch.block[1], launch.block[2]);
    else if (launch.shared_bytes > kMaxShared)
        append("%u bytes of dynamic shared memory, %u at most", launch.shared_bytes, kMaxShared);
    else if (cluster == 0 || cluster > 16 || launch.grid[0] % launch.cluster[0] || launch.grid[1] % launch.cluster[1] ||
             launch.grid[2] % launch.cluster[2])
        append("cluster (%u,%u,%u) has more than 16 blocks, none, or does not divide the grid", launch.cluster[0], launch.cluster[1],
               launch.cluster[2]);
    else if (launch.cooperative && blocks * threads > kMaxGang)
        append("a cooperative launch of %llu threads, %u at most on the CPU", blocks * threads, kMaxGang);
    else if (engine.static_bytes + launch.shared_bytes > kMaxShared + 64)
        append("%zu bytes of static and dynamic shared memory, %u at most", engine.static_bytes + launch.shared_bytes, kMaxShared);
    return launch.message[0] == 0;
}

void run_grid(const Launch& launch) {
    const uint3 extent = {launch.cluster[0], launch.cluster[1], launch.cluster[2]};
    const uint3 count = {launch.grid[0] / extent.x, launch.grid[1] / extent.y, launch.grid[2] / extent.z};
    const std::size_t clusters = std::size_t{count.x} * count.y * count.z;
    const std::size_t size = std::size_t{extent.x} * extent.y * extent.z;
    const std::size_t together = launch.cooperative ? clusters : 1;
    std::vector<std::size_t> order;
    if (engine.shuffled) {
        for (std::size_t i = 0; i < clusters; ++i) order.push_back(i);
        for (std::size_t i = clusters; i > 1; --i) std::swap(order[i - 1], order[draw_below(i)]);
    }
    while (engine.pool.size() < together * size) engine.pool.push_back(new Block);
    engine.clusters.resize(together);
    for (std::size_t first = 0; first < clusters && !engine.failed; first += together) {
        engine.gang.clear();
        engine.grid = GangBarrier{};
        for (std::size_t i = 0; i < together; ++i) {
            const std::size_t number = engine.shuffled ? order[first + i] : first + i;
            const uint3 at = {static_cast<unsigned>(number % count.x), static_cast<unsigned>(number / count.x % count.y),
                              static_cast<unsigned>(number / count.x / count.y)};
            Cluster& cluster = engine.clusters[i];
            cluster.barrier = GangBarrier{};
            cluster.index = at;
            cluster.blocks.clear();
            for (unsigned rank = 0; rank < size; ++rank) {
                const uint3 index = {at.x * extent.x + rank % extent.x, at.y * extent.y + rank / extent.x % extent.y,
                                     at.z * extent.z + rank / extent.x / extent.y};
                Block& block = *engine.pool[engine.gang.size()];
                prepare(block, index, cluster, rank);
                engine.gang.push_back(&block);
            }
        }
        run_gang();
    }
}

// ------------------------------------------------------------------------------------------------- what kernels call

int block_barrier(Vote vote, int predicate, Site site) {
    Job& job = self();
    Block& block = *job.block;
    Barrier& barrier = block.barrier;
    if (barrier.arrived == 0) {
        barrier.vote = vote;
        barrier.site = site;
    } else if (barrier.vote != vote || barrier.site.line != site.line) {
        begin_failure(job, site);
        append("%s, but %u threads of the block wait in %s at %s:%d", vote_name(vote), barrier.arrived, vote_name(barrier.vote),
               file_name(barrier.site), barrier.site.line);
        stop();
    }
    if (engine.launch->strict && block.alive != block.jobs.size()) {
        begin_failure(job, site);
        append("%s after %zu threads of the block have exited", vote_name(vote), block.jobs.size() - block.alive);
        stop();
    }
    barrier.tally += predicate != 0;
    if (++barrier.arrived == block.alive) {
        complete(block);
        const int result = barrier.result;
        release(block, Wait::block, &barrier);
        return result;
    }
    wait_here(job, Wait::block, site);
    return static_cast<int>(job.value);
}

void named_barrier(unsigned id, unsigned threads, Site site) {
    Job& job = self();
    if (id >= kNamedBarriers || threads == 0 || threads % kWarp != 0) {
        begin_failure(job, site);
        append("named barrier %u of %u threads: 0..15 and a multiple of 32 are possible", id, threads);
        stop();
    }
    Barrier& barrier = job.block->named[id];
    if (barrier.arrived != 0 && barrier.wanted != threads) {
        begin_failure(job, site);
        append("named barrier %u for %u threads, but others wait for %u", id, threads, barrier.wanted);
        stop();
    }
    barrier.wanted = threads;
    if (++barrier.arrived == threads) {
        barrier.arrived = 0;
        release(*job.block, Wait::named, &barrier);
        return;
    }
    job.source = id;
    wait_here(job, Wait::named, site);
}

Word shuffle(unsigned mask, const Word& value, unsigned source, Site site) {
    Job& job = self();
    job.deposit = value;
    job.source = source;
    if ((mask >> source & 1u) == 0 && engine.launch->strict) {
        begin_failure(job, site);
        append("__shfl_sync reads lane %u, which mask 0x%08x leaves out", source, mask);
        stop();
    }
    meet(job, Warp::shuffle, mask, false, site);
    return job.result;
}

unsigned long long warp_collect(Warp what, unsigned mask, unsigned long long value, bool is_signed, Site site, int* all_equal) {
    Job& job = self();
    job.value = value;
    meet(job, what, mask, is_signed, site);
    if (all_equal) *all_equal = job.equal;
    return job.value;
}

unsigned lane() { return self().lane; }

void yield_turn() {
    Job& job = self();
    Block& block = *job.block;
    if (engine.progress != engine.progress_seen) {
        engine.progress_seen = engine.progress;
        engine.idle_turns = 0;
        for (Block* other : engine.gang) other->idle_turns = 0;
    }
    if (++engine.idle_turns > 2000ULL * engine.gang.size() * engine.threads + 1000000) {
        begin_failure(job, Site{nullptr, 0});
        append("spins for something that no other thread will do");
        stop();
    }
    make_ready(job);
    if (++block.idle_turns >= block.ready_count) {  // Every thread here has had a turn: it may be another block's move.
        block.idle_turns = 0;
        engine.turn_over = true;
    }
    give_way();
    enter(job);
}

void nap() { yield_turn(); }

void fail(const char* what, Site site) {
    begin_failure(self(), site);
    append("%s", what);
    stop();
}

unsigned long long ticks() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<unsigned long long>(now.tv_sec) * 1000000000ULL + static_cast<unsigned long long>(now.tv_nsec);
}

void cluster_arrive(Site site) {
    Job& job = self();
    GangBarrier& barrier = job.block->cluster->barrier;
    if (job.cluster_arrived) {
        begin_failure(job, site);
        append("arrives at the cluster barrier twice without a wait");
        stop();
    }
    job.cluster_arrived = true;
    job.cluster_phase = barrier.phase;
    if (++barrier.arrived == barrier.alive) gang_passed(barrier, Wait::cluster, job.block->cluster);
}

void cluster_wait(Site site) {
    Job& job = self();
    if (!job.cluster_arrived) {
        begin_failure(job, site);
        append("waits at the cluster barrier without having arrived");
        stop();
    }
    job.cluster_arrived = false;
    if (job.cluster_phase == job.block->cluster->barrier.phase) wait_here(job, Wait::cluster, site);
}

unsigned cluster_rank() { return self().block->rank; }

unsigned cluster_size() { return static_cast<unsigned>(self().block->cluster->blocks.size()); }

uint3 cluster_index() { return self().block->cluster->index; }

void* cluster_map(void* own, unsigned rank, Site site) {
    Job& job = self();
    const Block& block = *job.block;
    if (rank >= block.cluster->blocks.size()) {
        begin_failure(job, site);
        append("maps shared memory of rank %u in a cluster of %zu", rank, block.cluster->blocks.size());
        stop();
    }
    if (rank == block.rank) return own;
    const Block& other = *block.cluster->blocks[rank];
    if (other.alive == 0) {
        begin_failure(job, site);
        append("maps shared memory of rank %u, whose threads have all exited", rank);
        stop();
    }
    auto* address = static_cast<unsigned char*>(own);
    if (address >= baracuda_smem && address < baracuda_smem + engine.launch->shared_bytes) return other.image + (address - baracuda_smem);
    if (address >= engine.statics && address < engine.statics + engine.static_bytes) return image_of_statics(other) + (address - engine.statics);
    begin_failure(job, site);
    append("maps an address that is not in its shared memory");
    stop();
}

void grid_barrier(Site site) {
    Job& job = self();
    if (!engine.launch->cooperative) fail("grid barrier in a launch that is not cooperative", site);
    if (++engine.grid.arrived == engine.grid.alive) {
        gang_passed(engine.grid, Wait::grid, nullptr);
        return;
    }
    wait_here(job, Wait::grid, site);
}

}  // namespace baracuda_cpu

// Returns 0, or 1 with launch->message filled.
extern "C" __attribute__((visibility("default"))) int baracuda_cpu_launch(const baracuda_cpu::Launch* launch) {
    using namespace baracuda_cpu;
    launch->message[0] = 0;
    engine.launch = launch;
    engine.failed = false;
    find_statics(launch->thread_local_anchor);
    if (!check(*launch)) return 1;
    block_extent = dim3{launch->block[0], launch->block[1], launch->block[2]};
    grid_extent = dim3{launch->grid[0], launch->grid[1], launch->grid[2]};
    engine.threads = launch->block[0] * launch->block[1] * launch->block[2];
    engine.shuffled = launch->seed >= 0;
    engine.random = (static_cast<std::uint64_t>(launch->seed) + 1) * 0x9E3779B97F4A7C15ULL | 1;
    engine.progress = engine.progress_seen = engine.idle_turns = 0;
    engine.turn_over = false;
    engine.fibres.start();
    unsigned char* const unused = baracuda_smem + launch->shared_bytes;
    __asan_poison_memory_region(unused, kMaxShared - launch->shared_bytes);
    {
        Signals signals;
        run_grid(*launch);
    }
    __asan_unpoison_memory_region(unused, kMaxShared - launch->shared_bytes);
    if (engine.failed) engine.fibres.reset_all();
    return engine.failed ? 1 : 0;
}
