#include "parallel/sockets/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/units.h"

namespace spillway::parallel {
namespace {

[[noreturn]] void refused(const char* what, i64 bytes, int error) {
  throw Error(ErrorCode::io,
              fmt::format("[shared memory] expected {} of {} to succeed, got \"{}\": every rank shares this much memory with the other "
                          "ranks of its node; start fewer ranks, or free memory in this control group (cgroup)",
                          what, format_bytes(bytes), std::strerror(error)));
}

}  // namespace

SharedMemory SharedMemory::make(i64 bytes) {
  Descriptor file(memfd_create("spillway", MFD_CLOEXEC));
  if (!file) refused("memfd_create", bytes, errno);
  // Reserves the memory when it is made. Otherwise, if memory runs out, a later access would end the process with SIGBUS.
  if (const int error = posix_fallocate(file.get(), 0, bytes); error != 0) refused("allocation", bytes, error);
  return of(std::move(file), bytes);
}

SharedMemory SharedMemory::of(Descriptor file, i64 bytes) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) refused("fstat", bytes, errno);
  if (status.st_size != bytes)
    throw Error(ErrorCode::io, fmt::format("[shared memory] expected another rank of this node to share {} of memory, got {}",
                                           format_bytes(bytes), format_bytes(status.st_size)));
  SharedMemory made;
  void* begin = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (begin == MAP_FAILED) refused("mmap", bytes, errno);
  made.memory_ = {static_cast<std::byte*>(begin), static_cast<size_t>(bytes)};
  made.file_ = std::move(file);
  return made;
}

SharedMemory::~SharedMemory() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

}  // namespace spillway::parallel
