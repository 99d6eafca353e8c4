// Declares faults that tests may plant in the emulated CUDA runtime and NCCL, and counters that they may read.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <set>

namespace emulated_cuda {

/// Makes the `nth` call of `function` from now on (1: the next one) return `status`.
/// Asynchronous work of a stream fails when it runs: then the `nth` copy or kernel fails.
void fail(const char* function, int nth, cudaError_t status);
/// Returns the bytes of device memory that are allocated on all GPUs.
size_t held_bytes();
/// Returns the number of copies from or to unregistered (pageable) host memory. Each of them waited for its stream.
size_t blocking_copies();
/// Returns whether this process has a context on the GPU.
bool has_context(int gpu);
/// Closes all GPUs, so that the process finds them as a new process does.
void forget_contexts();
/// Sets simulated rates: from now on cudaEventElapsedTime() reports when a GPU with these rates would have reached
/// the events (times.h). `threads_per_s` applies to all kernels except cublasLtMatmul, whose rate is `flops`.
struct Rates {
  double copy_bytes_per_s, threads_per_s, flops;
};
void use_rates(const Rates& rates);
void forget_rates();
/// Sets the memory size of each GPU (default 1 GiB).
void set_total_bytes(size_t bytes);
/// Returns the number of kernels, since the last forget_kernels(), that were loaded while an exchange on a GPU waited for
/// another rank. On a real GPU this may deadlock: the driver waits for the exchange, and the other rank waits for this one.
int late_loads();
void forget_kernels();
/// Returns the number of bytes of host memory that are registered (page-locked).
size_t registered_bytes();
/// Tells which GPUs were current, and on how many threads, in calls that registered host memory since the last registrations().
struct Registrations {
  std::set<int> gpus;
  size_t threads = 0;
};
Registrations registrations();

// The functions below belong to the emulated NCCL.
/// Returns the number of communicators that are neither destroyed nor aborted.
int nccl_communicators();
/// The constants say how much GPU memory a communicator, each pair of ranks and the first collective take, in bytes.
constexpr size_t kNcclBytes = size_t{1} << 20, kNcclPairBytes = size_t{256} << 10, kNcclCollectiveBytes = size_t{512} << 10;
/// Sets whether ncclCommAbort hangs: while `blocks` is true, it does not return and ends nothing.
void block_nccl_abort(bool blocks);
/// Returns maxCTAs (the limit of thread blocks) of the last communicator that was made.
int nccl_most_blocks();
/// Returns the number of operations on streams that wait for another rank.
int nccl_waiting();

}  // namespace emulated_cuda
