// The exchange between ranks from GPU to GPU over NCCL, where every rank has a GPU of its own. NCCL only carries bytes: a kernel of this
// project adds the numbers in the order of ordered_sum.h, so the bits are those of sums in host memory. Exchanges are put on their lane's
// queue and wait there for other ranks while the GPU does other work. No lane waits for an exchange; one thread supervises them all
// (nccl_watch_cuda.h). Whether other ranks are still alive is asked over their Communicator, whose errors are reported. NCCL allocates GPU
// memory of its own, which no pool counts.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "device/memory_pool.h"
#include "parallel/exchange/rank_exchange.h"
#include "parallel/plan/plan.h"

namespace spillway::parallel {

/// Returns why ranks on this machine cannot use NCCL (it is missing in this build or on this machine); empty if they can.
std::string nccl_problem();
/// Returns for example "2.28.9"; empty if there is no NCCL.
std::string nccl_version();
/// A rank's result of a trial exchange.
struct NcclTrial {
  std::string problem;  // reason why the bytes did not arrive intact; empty if they did
  // GPU memory that NCCL allocated: for a communicator of all ranks that uses all-gather, and for each pair of ranks that send to each
  // other.
  i64 communicator_bytes = 0, pair_bytes = 0;
};
/// Sends bytes once from each rank's GPU to all. A collective of all ranks, which ends within about the time-out. `stuck`: as in
/// NcclOptions.
NcclTrial try_nccl(Communicator& ranks, int gpu, double timeout_s, const std::function<void(const std::string& why)>& stuck = {});

struct NcclOptions {
  int gpu = 0;
  double timeout_s = 60;                   // for what NCCL itself does, once all ranks have arrived
  MemoryPool* device = nullptr;            // provides the planned memory
  Communicator* data_ranks = nullptr;      // null if there is only one data-parallel rank
  Communicator* pipeline_ranks = nullptr;  // null if there is only one pipeline rank
  // Called if NCCL does not release a GPU within abort_s after an error. Anything that waits for that GPU then waits forever, so the
  // process should end immediately. May be empty.
  std::function<void(const std::string& why)> stuck = {};
  double abort_s = 15;
};

/// Makes the exchange for plans with gpu_to_gpu. All ranks of both groups must make it together and destroy it together. The communicators
/// must outlive it. Throws Error(usage) without NCCL or if two ranks use one GPU, and Error(peer) if a rank does not arrive.
std::unique_ptr<RankExchange> make_nccl_exchange(const Plan& plan, const NcclOptions& options);

}  // namespace spillway::parallel
