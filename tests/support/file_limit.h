// Sets `ulimit -f` for this process. Writes beyond the limit fail with EFBIG, much as a full disk fails them with ENOSPC.
#pragma once
#include <sys/resource.h>

#include <csignal>

namespace spillway::test {

class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : before_signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, before_signal_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
  void (*before_signal_)(int);
};

}  // namespace spillway::test
