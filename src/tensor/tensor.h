// Defines Tensor, a view of a Storage: offset, shape, strides and element type. A tensor is
// cheap to copy and has neither mathematical operations nor a tape. Strides count elements. Most
// kernels require contiguous views and check for them. The view functions of Tensor never copy.
#pragma once
#include <memory>

#include "device/stream.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/storage.h"

namespace spillway {

class Tensor {
 public:
  Tensor() = default;  // creates an undefined tensor, without storage
  /// Creates a contiguous view at `offset_bytes` of `storage`. Throws Error(bug) if the view does not fit into the storage.
  Tensor(std::shared_ptr<Storage> storage, i64 offset_bytes, Shape shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  i64 size(int axis) const { return shape_[axis]; }
  i64 stride(int axis) const { return strides_[axis]; }
  int rank() const { return shape_.rank(); }
  i64 elems() const { return shape_.elems(); }
  i64 bytes() const { return elems() * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  bool is_contiguous() const;

  /// Returns a pointer to the first element; null on the meta device. Throws Error(bug) on a dtype mismatch or when the storage is not
  /// resident.
  template <class T>
  T* data() const {
    check_dtype(DTypeOf<T>::value);
    return reinterpret_cast<T*>(raw());
  }
  std::byte* raw() const;
  /// Returns the elements of a contiguous view; empty on the meta device.
  template <class T>
  std::span<T> span() const {
    require_contiguous();
    T* first = data<T>();
    return {first, first ? static_cast<size_t>(elems()) : 0};
  }
  /// Returns the value of a one-element tensor as double; 0 on the meta device. For a GPU tensor, item() waits for the GPU.
  double item() const;

  Tensor reshape(const Shape& shape) const;                   // changes the shape, not the number of elements; contiguous views only
  Tensor reinterpret(const Shape& shape, DType dtype) const;  // reinterprets the same bytes; contiguous views only
  Tensor permute(std::initializer_list<int> axes) const;
  Tensor transpose(int a, int b) const;
  Tensor slice(int axis, i64 begin, i64 end) const;  // restricts one axis to [begin, end)

 private:
  void check_dtype(DType wanted) const;
  void require_contiguous() const;
  std::shared_ptr<Storage> storage_;
  i64 offset_bytes_ = 0;
  Shape shape_, strides_;
  DType dtype_ = DType::f32;
};

/// Returns an uninitialised contiguous tensor in memory of the current stream. `what` names the tensor in an out-of-memory message.
Tensor empty(const Shape& shape, DType dtype, const char* what = "tensor");
/// Returns a tensor filled with zeros.
Tensor zeros(const Shape& shape, DType dtype, const char* what = "tensor");
/// Returns a tensor on the device of the current stream with a copy of `values` in row-major order.
template <class T>
Tensor tensor_of(std::span<const T> values, const Shape& shape);
/// Copies a contiguous view to the device of the current stream. For a GPU tensor the stream must belong to that GPU.
Tensor to_current_device(const Tensor& t, const char* what = "tensor");
/// Copies a contiguous view to host memory; the copy is complete on return. For a GPU tensor the current stream must belong to that GPU.
Tensor to_host(const Tensor& t);

}  // namespace spillway
