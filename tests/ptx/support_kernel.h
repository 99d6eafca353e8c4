// Runs small kernels that tests write in PTX.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ptx/interpreter.h"

namespace ptx::test {

/// Memory that kernels may use.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count, bool is_written = true) : values_(count) { add_piece(values_.data(), count * sizeof(T), is_written); }
  ~Buffer() { remove_piece(values_.data()); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T& operator[](std::size_t i) { return values_[i]; }
  T* data() { return values_.data(); }
  const std::vector<T>& values() const { return values_; }

 private:
  std::vector<T> values_;
};

constexpr const char* kRegisters =
    ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .f32 %f<16>; .reg .b64 %d<16>; .reg .f64 %g<8>;\n"
    "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [k_param_0]; mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1;\n";

/// A kernel "k" of two pointers. In its body %r0 is the thread's number, %d0 the first pointer and %d2 the address of the thread's
/// word there. Shared memory is declared by the body.
inline std::string kernel(const std::string& body) {
  return std::string(
             ".version 9.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n"
             ".visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)\n{\n") +
         kRegisters + body + "\nret;\n}\n";
}

/// Runs it with this many threads a block and blocks. Returns the report of the fault, or an empty string.
inline std::string run(const std::string& body, void* first, unsigned threads = 32, unsigned blocks = 1, unsigned seed = 1,
                       void* second = nullptr, std::size_t dynamic_shared_bytes = 0) {
  Loaded loaded(kernel(body));
  void* arguments[] = {&first, &second};
  return loaded.run("k", {{blocks, 1, 1}, {threads, 1, 1}, dynamic_shared_bytes}, loaded.parameters_of("k", arguments), seed);
}

}  // namespace ptx::test
