#include "tests/e2e/support_kernel.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/loop.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace spillway::test {
namespace {

namespace fs = std::filesystem;
using Filter = std::vector<sock_filter>;

// This ioctl is the kernel's EXT4_IOC_SHUTDOWN, which no user space header declares. After it, every access to the file system fails with
// EIO.
constexpr unsigned long kExt4Shutdown = _IOR('X', 125, __u32);
constexpr __u32 kWithoutFlush = 2;

sock_filter load(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<__u32>(offset)); }
sock_filter answer(__u32 action) { return BPF_STMT(BPF_RET | BPF_K, action); }
sock_filter skip_unless_equal(__u32 value, __u8 skipped) { return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped); }

void add_refusal(Filter& filter, int system_call, int error_number) {
  filter.insert(filter.end(), {load(offsetof(seccomp_data, nr)), skip_unless_equal(static_cast<__u32>(system_call), 1),
                               answer(SECCOMP_RET_ERRNO | static_cast<__u32>(error_number))});
}

void install(Filter filter) {
  filter.push_back(answer(SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  const bool done = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  if (!done) ::_exit(125);
}

}  // namespace

// The fourth argument of pread64 and pwrite64 is the offset. Stores in these tests end below 4 GiB, so its lower half is enough.
void fail_beyond(i64 offset, int error_number) {
  Filter filter;
  add_refusal(filter, SYS_io_uring_setup, ENOSYS);
  for (const int system_call : {SYS_pread64, SYS_pwrite64}) {
    filter.insert(filter.end(), {load(offsetof(seccomp_data, nr)), skip_unless_equal(static_cast<__u32>(system_call), 3),
                                 load(offsetof(seccomp_data, args) + 3 * sizeof(__u64)),
                                 BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, static_cast<__u32>(offset), 0, 1),
                                 answer(SECCOMP_RET_ERRNO | static_cast<__u32>(error_number))});
  }
  install(std::move(filter));
}

void refuse_direct_io() {
  install({load(offsetof(seccomp_data, nr)), skip_unless_equal(SYS_openat, 3), load(offsetof(seccomp_data, args) + 2 * sizeof(__u64)),
           BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_DIRECT, 0, 1), answer(SECCOMP_RET_ERRNO | EINVAL)});
}

void limit_locked_memory(i64 bytes) {
  const rlimit limit{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  const bool dropped = ::prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) == 0 || ::geteuid() != 0;
  if (!dropped || ::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) ::_exit(125);
}

LoopDisk::LoopDisk(const fs::path& image, const fs::path& mounted_at, i64 bytes) : at_(mounted_at) {
  fs::create_directory(at_);
  const int file = ::open(image.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || ::posix_fallocate(file, 0, bytes) != 0) why_not_ = "no room for a disk image";
  if (file >= 0) ::close(file);
  if (!why_not_.empty()) return;
  const std::string make = "PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -F '" + image.string() + "' >/dev/null 2>&1";
  if (std::system(make.c_str()) != 0) {
    why_not_ = "there is no mkfs.ext4";
  } else {
    why_not_ = attach(image);
  }
}

std::string LoopDisk::attach(const fs::path& image) {
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  const int number = control < 0 ? -1 : ::ioctl(control, LOOP_CTL_GET_FREE);
  if (control >= 0) ::close(control);
  if (number < 0) return std::string("loop devices are not permitted: ") + std::strerror(errno);
  device_ = "/dev/loop" + std::to_string(number);
  loop_ = ::open(device_.c_str(), O_RDWR | O_CLOEXEC);
  const int file = ::open(image.c_str(), O_RDWR | O_CLOEXEC);
  const bool attached = loop_ >= 0 && file >= 0 && ::ioctl(loop_, LOOP_SET_FD, file) == 0;
  if (file >= 0) ::close(file);
  if (!attached) return "no loop device can be attached: " + std::string(std::strerror(errno));
  mounted_ = ::mount(device_.c_str(), at_.c_str(), "ext4", 0, nullptr) == 0;
  return mounted_ ? "" : std::string("mounting an ext4 is not permitted: ") + std::strerror(errno);
}

LoopDisk::~LoopDisk() {
  if (mounted_) ::umount2(at_.c_str(), MNT_DETACH);
  if (loop_ >= 0) ::ioctl(loop_, LOOP_CLR_FD), ::close(loop_);
}

void LoopDisk::vanish() {
  const int root = ::open(at_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  __u32 how = kWithoutFlush;
  if (root < 0 || ::ioctl(root, kExt4Shutdown, &how) != 0) why_not_ = std::string("this ext4 cannot be shut down: ") + std::strerror(errno);
  if (root >= 0) ::close(root);
}

}  // namespace spillway::test
