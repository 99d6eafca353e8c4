// TensorReader is the interface to the tensors of a file or of a checkpoint's folder, whatever the format. Reading streams: a tensor is
// never held whole. Thread-safe after construction.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "data/safetensors/tensor_index.h"

namespace spillway::data {

class TensorReader {
 public:
  virtual ~TensorReader() = default;
  /// Returns the tensors in the file's order.
  const std::vector<TensorInfo>& tensors() const { return index_.all(); }
  /// Returns the tensor of that name, or null if there is none.
  const TensorInfo* find(const std::string& name) const { return index_.find(name); }
  /// Copies elements [begin, begin + out.size()) of one of tensors(), widened to fp64. The elements are counted in row-major order, however
  /// the file stores them. Throws Error(data) if they are not floating-point numbers.
  void read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const;
  /// Copies elements from `begin` on, in the dtype in which they are stored, until `out` is full. If the file does not store them
  /// contiguously, or the reader cannot tell, it returns false and reads nothing.
  virtual bool read_bytes(const TensorInfo& /*tensor*/, i64 /*begin*/, std::span<std::byte> /*out*/) const { return false; }

 protected:
  TensorReader() = default;
  TensorReader(TensorReader&&) noexcept = default;
  void hold(TensorIndex index) { index_ = std::move(index); }
  /// Returns the tensor's index in tensors().
  size_t number_of(const TensorInfo& tensor) const { return index_.number(tensor.name); }

 private:
  virtual void widen(const TensorInfo& tensor, i64 begin, std::span<double> out) const = 0;

  TensorIndex index_;
};

}  // namespace spillway::data
