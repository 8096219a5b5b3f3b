// Fibres: stacks of their own on one OS thread, switched without a system call, known to AddressSanitizer.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#if !defined(__x86_64__) || defined(BARACUDA_CPU_UCONTEXT)
#include <ucontext.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define __asan_poison_memory_region(address, size) ((void)(address), (void)(size))
#define __asan_unpoison_memory_region(address, size) ((void)(address), (void)(size))
#endif

namespace baracuda_cpu {

struct Job;
void fibre_main();

struct Fibre {
#if defined(__x86_64__) && !defined(BARACUDA_CPU_UCONTEXT)
    void* stack_pointer = nullptr;
#else
    ucontext_t context;
#endif
    unsigned char* stack = nullptr;
    std::size_t stack_bytes = 0;
    void* fake_stack = nullptr;
    Job* job = nullptr;
};

#if defined(__x86_64__) && !defined(BARACUDA_CPU_UCONTEXT)

// Saves the registers that a callee must keep, swaps stack pointers, restores the others' registers.
extern "C" void baracuda_cpu_switch_stack(void** save, void* load);
__asm__(
    ".text\n"
    ".type baracuda_cpu_switch_stack,@function\n"
    "baracuda_cpu_switch_stack:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size baracuda_cpu_switch_stack,.-baracuda_cpu_switch_stack\n");

inline void lay_out(Fibre& fibre, std::size_t stack_bytes) {
    void** top = reinterpret_cast<void**>(fibre.stack + stack_bytes);
    *--top = nullptr;  // fibre_main's return address: it never returns.
    *--top = reinterpret_cast<void*>(&fibre_main);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    fibre.stack_pointer = top;
}

inline void swap_stacks(Fibre& from, Fibre& to) { baracuda_cpu_switch_stack(&from.stack_pointer, to.stack_pointer); }

#else

inline void lay_out(Fibre& fibre, std::size_t stack_bytes) {
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack;
    fibre.context.uc_stack.ss_size = stack_bytes;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, fibre_main, 0);
}

inline void swap_stacks(Fibre& from, Fibre& to) { swapcontext(&from.context, &to.context); }

#endif

class Fibres {
public:
    Fibre home;  // The stack of the launch itself.
    Fibre* current = &home;

    void start() {
        current = &home;
#if defined(__SANITIZE_ADDRESS__)
        pthread_attr_t attributes;
        void* address = nullptr;
        if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
            pthread_attr_getstack(&attributes, &address, &home.stack_bytes);
            pthread_attr_destroy(&attributes);
        }
        home.stack = static_cast<unsigned char*>(address);
#endif
    }

    void switch_to(Fibre& to) {
        Fibre& from = *current;
        current = &to;
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
#endif
        swap_stacks(from, to);
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
    }

    // What fibre_main does first.
    static void arrived() {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    }

    Fibre& take() {
        if (idle_.empty()) return make();
        Fibre& fibre = *idle_.back();
        idle_.pop_back();
        return fibre;
    }

    void give(Fibre& fibre) { idle_.push_back(&fibre); }

    // After a failure: fibres stand in the middle of kernels; forget what they were doing.
    void reset_all() {
        idle_.clear();
        for (std::size_t i = 0; i < all_.size(); ++i) {
            Fibre& fibre = *all_[i];
            __asan_unpoison_memory_region(fibre.stack, fibre.stack_bytes);
            fibre.fake_stack = nullptr;
            fibre.job = nullptr;
            lay_out(fibre, kStackBytes - stagger(i));
            idle_.push_back(&fibre);
        }
    }

private:
    static constexpr std::size_t kStackBytes = 128 * 1024;
    static constexpr std::size_t kGuardBytes = 4096;

    static std::size_t stagger(std::size_t number) { return number % 61 * 64; }  // Else all stacks share a few cache sets.

    Fibre& make() {
        auto* fibre = new Fibre;
        void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
            std::fprintf(stderr, "cuda_on_cpu: no memory for the stack of a thread\n");
            std::abort();
        }
        fibre->stack = static_cast<unsigned char*>(memory) + kGuardBytes;
        fibre->stack_bytes = kStackBytes;
        lay_out(*fibre, kStackBytes - stagger(all_.size()));
        all_.push_back(fibre);
        idle_.reserve(all_.capacity());
        return *fibre;
    }

    std::vector<Fibre*> idle_, all_;
};

}  // namespace baracuda_cpu
