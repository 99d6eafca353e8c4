// Kills a child process right before any system call that changes a filesystem: before its n-th such call, for every n until it survives.
// seccomp traps each call into a handler, which counts it and makes it again with a mark that lets it pass.
#pragma once
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <vector>

namespace spillway::test {

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool kCanKillAt = true;

inline std::atomic<int> calls_to_live{0};
constexpr unsigned kPassMark = 0x51a57a11;  // value of the sixth argument that lets a call pass; none of these calls has a sixth argument

inline void count_call(int, siginfo_t*, void* context) {
  if (--calls_to_live == 0) {
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }
  auto& r = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const int before = errno;
  const long result = ::syscall(r[REG_RAX], r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], long{kPassMark});
  r[REG_RAX] = result < 0 ? -errno : result;
  errno = before;
}

/// Arranges that the process is killed right before call number n, counted from 1, of this thread and of the threads that it starts.
inline void kill_at(int n) {
  calls_to_live = n;
  struct sigaction action {};
  action.sa_sigaction = count_call;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGSYS, &action, nullptr);
  const std::vector<int> calls = {SYS_mkdir, SYS_rename, SYS_link,      SYS_unlink,   SYS_unlinkat,  SYS_rmdir,
                                  SYS_write, SYS_fsync,  SYS_fdatasync, SYS_pwrite64, SYS_ftruncate, SYS_fallocate};
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  // returns how many instructions the filter skips after it has found call number c, to get to the check of the mark
  const auto skip = [&](size_t c) { return static_cast<__u8>(calls.size() - 1 - c + 4); };
  for (size_t c = 0; c < calls.size(); ++c) filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<__u32>(calls[c]), skip(c), 0));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<__u32>(SYS_openat), 0, 2));
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 1, 0));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[5])));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPassMark, 0, 1));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(125);
}
#else  // not compiled here: the handler needs x86-64's registers, and sanitizers install handlers of their own
constexpr bool kCanKillAt = false;
inline void kill_at(int) {}
#endif

enum class End { killed, lived, failed };

/// Runs `body` in a child process that is killed at call n, and returns how the process ended. An exception counts as End::failed.
inline End end_of(int n, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      kill_at(n);
      body();
      ::_exit(0);
    } catch (...) {
      ::_exit(1);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? End::killed : status == 0 ? End::lived : End::failed;
}

}  // namespace spillway::test
