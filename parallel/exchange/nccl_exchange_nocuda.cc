#include "base/error.h"
#include "parallel/exchange/nccl_exchange.h"

namespace spillway::parallel {

std::string nccl_problem() { return "this build has no CUDA and therefore no NCCL"; }

std::string nccl_version() { return ""; }

NcclTrial try_nccl(Communicator&, int, double, const std::function<void(const std::string&)>&) { return {nccl_problem()}; }

std::unique_ptr<RankExchange> make_nccl_exchange(const Plan&, const NcclOptions&) {
  throw Error(ErrorCode::bug, "[nccl] expected a build with CUDA for communication between GPUs, got one without CUDA");
}

}  // namespace spillway::parallel
