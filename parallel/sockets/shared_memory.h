// A SharedMemory is memory that processes on the same node share. It has no name in a file system, and it is freed when the last process
// that maps it ends, even if that process is killed. It counts against a memory limit, but not against the size of /dev/shm. Not
// thread-safe.
#pragma once
#include <span>

#include "parallel/sockets/socket.h"

namespace spillway::parallel {

class SharedMemory {
 public:
  SharedMemory() = default;
  /// Allocates memory that holds zeros and is physically reserved. If that fails, throws Error(io), which names the size.
  static SharedMemory make(i64 bytes);
  /// Maps memory that another process has made. Throws Error(io) unless it has the size `bytes`.
  static SharedMemory of(Descriptor file, i64 bytes);
  SharedMemory(SharedMemory&& other) noexcept : file_(std::move(other.file_)), memory_(std::exchange(other.memory_, {})) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~SharedMemory();

  std::span<std::byte> bytes() const { return memory_; }
  int descriptor() const { return file_.get(); }

 private:
  Descriptor file_;
  std::span<std::byte> memory_;
};

}  // namespace spillway::parallel
