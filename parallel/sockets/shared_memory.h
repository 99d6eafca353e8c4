// Memory that processes of one node see together: nobody's file, gone with the last who maps it, also when they are killed. It counts
// against a memory limit, not against the size of /dev/shm. Not thread-safe.
#pragma once
#include <span>

#include "parallel/sockets/socket.h"

namespace spillway::parallel {

class SharedMemory {
 public:
  SharedMemory() = default;
  /// Zero, and really there. Error(io) with its size when it cannot be had.
  static SharedMemory make(i64 bytes);
  /// Another's. Error(io) unless it has that size.
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
