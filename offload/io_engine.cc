#include "offload/io_engine.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "offload/piece.h"

namespace spillway::offload {
namespace {

constexpr int kMaxQueueDepth = 4096;
// pread takes 105 to 110 ms of CPU time per GiB and io_uring 98, checksums included, as measured with bench/disk.cc.
constexpr const char* kLoss = "pread is as fast but uses about 10 ms more CPU time per GiB";

std::string likely_cause(int error_number) {
  switch (error_number) {
    case EPERM:
      return "EPERM: seccomp or kernel.io_uring_disabled forbids io_uring";
    case EACCES:
      return "EACCES: a security module of the system forbids io_uring";
    case ENOSYS:
      return "ENOSYS: the kernel is older than 5.6 or was built without io_uring";
    case ENOMEM:
      return "ENOMEM: the memlock limit (ulimit -l) or memory is used up";
    case EMFILE:
      return "EMFILE: the limit of open files (ulimit -n) is reached";
    case ENFILE:
      return "ENFILE: the system's limit of open files is reached";
    default:
      return fmt::format("errno {}: {}", error_number, std::generic_category().message(error_number));
  }
}

}  // namespace

ChosenEngine make_io_engine(IoEngineKind kind, int queue_depth) { return make_io_engine(kind, queue_depth, SystemCalls::real()); }

ChosenEngine make_io_engine(IoEngineKind kind, int queue_depth, SystemCalls& system) {
  if (queue_depth < 1 || queue_depth > kMaxQueueDepth) {
    throw Error(ErrorCode::usage, fmt::format("[io engine] expected a queue depth from 1 to {}, got {}", kMaxQueueDepth, queue_depth));
  }
  const std::string depth = fmt::format("queue depth {}", queue_depth);
  if (kind == IoEngineKind::pread) return {make_pread_engine(queue_depth, system), "pread, " + depth};
  int refusal = 0;
  if (auto engine = make_uring_engine(queue_depth, system, refusal)) return {std::move(engine), "io_uring, " + depth};
  const std::string why = fmt::format("the system refused io_uring ({})", likely_cause(refusal));
  if (kind == IoEngineKind::io_uring) throw Error(ErrorCode::io, "[io engine] " + why + ": choose --io-engine pread or auto");
  return {make_pread_engine(queue_depth, system), fmt::format("pread: {}; {}", why, kLoss)};
}

}  // namespace spillway::offload
