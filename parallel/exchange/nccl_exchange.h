// What lies on a GPU meets other ranks from GPU to GPU, over NCCL, where every rank has a GPU of its own. NCCL carries bytes alone: numbers
// are summed by a kernel of ours in the order of ordered_sum.h, so the bits are those of host memory. Exchanges are only put on their
// lane's queue, where they wait for the other ranks beside all else that the GPU does: no lane waits for one, and a thread looks after them
// all (nccl_watch_cuda.h). Whether the other ranks are still there is asked over their Communicator, whose errors are those told. NCCL has
// memory of its own on the GPU, which no pool counts.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "device/memory_pool.h"
#include "parallel/exchange/rank_exchange.h"
#include "parallel/plan/plan.h"

namespace spillway::parallel {

/// Why ranks on this machine cannot talk over NCCL: this build or the machine has none. Empty when they can.
std::string nccl_problem();
/// "2.28.9"; empty where there is none.
std::string nccl_version();
/// What a rank saw of a first exchange.
struct NcclTrial {
  std::string problem;  // why the bytes did not come as they were sent; empty where they did
  // That NCCL took of the GPU's memory: for a communicator of all ranks that gathers, and for each pair of ranks that send to each other.
  i64 communicator_bytes = 0, pair_bytes = 0;
};
/// Bytes go once from each rank's GPU to all. All ranks call it together and end within the time-out, and a moment. `stuck`: as below.
NcclTrial try_nccl(Communicator& ranks, int gpu, double timeout_s, const std::function<void(const std::string& why)>& stuck = {});

struct NcclOptions {
  int gpu = 0;
  double timeout_s = 60;                   // for what NCCL itself does, once all ranks have come
  MemoryPool* device = nullptr;            // for what the plan says
  Communicator* data_ranks = nullptr;      // null: there is one
  Communicator* pipeline_ranks = nullptr;  // likewise
  // Told when NCCL does not let go of a GPU for abort_s after an error: whoever waits for that GPU then waits for ever, so that the process
  // should end here and now. May be none.
  std::function<void(const std::string& why)> stuck = {};
  double abort_s = 15;
};

/// All ranks of both groups call it together, with plans that have gpu_to_gpu; so they end it. The communicators outlive it. Error(usage)
/// without NCCL or with two ranks on one GPU, Error(peer) where a rank does not come.
std::unique_ptr<RankExchange> make_nccl_exchange(const Plan& plan, const NcclOptions& options);

}  // namespace spillway::parallel
