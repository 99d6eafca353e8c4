#include "base/thread.h"

#include <string>

#include "base/error.h"

namespace spillway {

void refuse_thread(const std::system_error& error) {
  throw Error(ErrorCode::io, "[thread] the system refused to start another thread: " + error.code().message() +
                                 ": raise the limit on processes (ulimit -u, pids.max of the job's control group) or on memory (ulimit "
                                 "-v), end other programs, or set a lower --threads");
}

}  // namespace spillway
