// A view of a Storage: offset, shape, strides, element type. Cheap to copy, no maths, no tape. Strides count elements. Most kernels want
// contiguous views and say so; the view functions here never copy.
#pragma once
#include <memory>

#include "device/stream.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/storage.h"

namespace spillway {

class Tensor {
 public:
  Tensor() = default;  // undefined
  /// A contiguous view at `offset_bytes` of `storage`. Throws Error(bug) if it does not fit.
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

  /// First element. Null on the meta device. Throws Error(bug) on a dtype mismatch or when the storage is not resident.
  template <class T>
  T* data() const {
    check_dtype(DTypeOf<T>::value);
    return reinterpret_cast<T*>(raw());
  }
  std::byte* raw() const;
  /// The elements of a contiguous view; empty on the meta device.
  template <class T>
  std::span<T> span() const {
    require_contiguous();
    T* first = data<T>();
    return {first, first ? static_cast<size_t>(elems()) : 0};
  }
  /// The one element of a one-element tensor, as double; 0 on the meta device. Of a GPU it is waited for.
  double item() const;

  Tensor reshape(const Shape& shape) const;                   // same element count, contiguous only
  Tensor reinterpret(const Shape& shape, DType dtype) const;  // the same bytes, contiguous only
  Tensor permute(std::initializer_list<int> axes) const;
  Tensor transpose(int a, int b) const;
  Tensor slice(int axis, i64 begin, i64 end) const;  // [begin, end) of one axis

 private:
  void check_dtype(DType wanted) const;
  void require_contiguous() const;
  std::shared_ptr<Storage> storage_;
  i64 offset_bytes_ = 0;
  Shape shape_, strides_;
  DType dtype_ = DType::f32;
};

/// Uninitialised, contiguous, from the stream in force. `what` names it in an out-of-memory message.
Tensor empty(const Shape& shape, DType dtype, const char* what = "tensor");
/// All zero.
Tensor zeros(const Shape& shape, DType dtype, const char* what = "tensor");
/// A copy of `values`.
template <class T>
Tensor tensor_of(std::span<const T> values, const Shape& shape);
/// A copy of a contiguous view on the device of the stream in force; of a GPU's tensor the stream must be that GPU's.
Tensor to_current_device(const Tensor& t, const char* what = "tensor");
/// A copy in host memory, there on return; of a GPU's tensor the stream in force must be that GPU's.
Tensor to_host(const Tensor& t);

}  // namespace spillway
