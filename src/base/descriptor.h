// Defines Descriptor, which owns a file descriptor and closes it.
#pragma once
#include <unistd.h>

#include <utility>

namespace spillway {

/// Owns a file descriptor and closes it in the destructor, which also releases a lock held through it. A negative number means that there
/// is no descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  /// Gives up ownership and returns the descriptor, which the caller must then close.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

}  // namespace spillway
