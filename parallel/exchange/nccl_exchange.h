// Exchanges data between ranks from GPU to GPU over NCCL, for ranks that each have their own GPU. NCCL only carries bytes. The numbers are
// added by a kernel of this project, in the order of ordered_sum.h, so sums are bitwise equal to sums made in host memory. An exchange is
// put on a queue (CUDA stream), where it waits for other ranks while the GPU does other work. No CPU thread waits for it; one thread
// supervises all exchanges (nccl_watch_cuda.h). This thread asks over the Communicator whether the other ranks are still alive, and reports
// the Communicator's errors. NCCL itself allocates GPU memory, which no pool counts.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "device/memory_pool.h"
#include "parallel/exchange/rank_exchange.h"
#include "parallel/plan/plan.h"

namespace spillway::parallel {

/// Returns why ranks on this machine cannot use NCCL: it is missing in this build or on this machine. Returns an empty text if they can.
std::string nccl_problem();
/// Returns the version of NCCL, for example "2.28.9", or an empty text if there is no NCCL.
std::string nccl_version();
/// The result of a trial exchange on one rank.
struct NcclTrial {
  std::string problem;  // why the bytes of the trial did not arrive intact; empty if they did
  // communicator_bytes: GPU memory that NCCL allocated for one communicator of all ranks that uses all-gather; pair_bytes: GPU memory for
  // each pair of ranks that send to each other.
  i64 communicator_bytes = 0, pair_bytes = 0;
};
/// Sends some bytes from each rank's GPU to all ranks, once. try_nccl() is a collective of all
/// ranks, which ends within about the time-out. `stuck` is described at NcclOptions.
NcclTrial try_nccl(Communicator& ranks, int gpu, double timeout_s, const std::function<void(const std::string& why)>& stuck = {});

struct NcclOptions {
  int gpu = 0;
  double timeout_s = 60;                   // limit in seconds for NCCL's own work, counted from the moment at which all ranks have arrived
  MemoryPool* device = nullptr;            // the pool from which the planned memory is allocated
  Communicator* data_ranks = nullptr;      // connects the data-parallel ranks; null if there is only one
  Communicator* pipeline_ranks = nullptr;  // connects the pipeline ranks; null if there is only one
  // This function is called if, after an error, NCCL does not release a GPU within abort_s. Anything that waits for
  // this GPU then waits forever, so the function should end the process immediately. May be empty.
  std::function<void(const std::string& why)> stuck = {};
  double abort_s = 15;
};

/// Makes the exchange for a plan with gpu_to_gpu. All ranks of both groups must call this function together, and
/// must destroy the results together. The communicators must outlive the exchange. Throws Error(usage) if there is
/// no NCCL or if two ranks use one GPU, and Error(peer) if a rank does not arrive.
std::unique_ptr<RankExchange> make_nccl_exchange(const Plan& plan, const NcclOptions& options);

}  // namespace spillway::parallel
