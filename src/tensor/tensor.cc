#include "tensor/tensor.h"

#include "base/error.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "device/transfer.h"

namespace spillway {
namespace {

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  i64 step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides.set(i, step);
    step *= shape[i];
  }
  return strides;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, i64 offset_bytes, Shape shape, DType dtype)
    : storage_(std::move(storage)), offset_bytes_(offset_bytes), shape_(shape), strides_(contiguous_strides(shape)), dtype_(dtype) {
  require(offset_bytes_ >= 0 && offset_bytes_ + bytes() <= storage_->bytes(), "[tensor] expected a view inside its storage");
}

bool Tensor::is_contiguous() const {
  if (elems() == 0) return true;
  i64 step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

std::byte* Tensor::raw() const {
  require(defined(), "[tensor] expected a defined tensor, got one without data");
  std::byte* base = storage_->data();
  return base ? base + offset_bytes_ : nullptr;
}

void Tensor::check_dtype(DType wanted) const {
  if (wanted != dtype_) {
    throw Error(ErrorCode::bug, "[tensor] expected " + std::string(to_string(wanted)) + ", got " + std::string(to_string(dtype_)) + " " +
                                    to_string(shape_));
  }
}

void Tensor::require_contiguous() const { require(is_contiguous(), "[tensor] expected a contiguous view"); }

double Tensor::item() const {
  require(elems() == 1, "[tensor] item() expects exactly one element");
  if (!raw()) return 0;
  if (device().is_cuda()) return to_host(*this).item();
  switch (dtype_) {
    case DType::f32:
      return *data<float>();
    case DType::f64:
      return *data<double>();
    case DType::int32:
      return *data<i32>();
    case DType::int64:
      return static_cast<double>(*data<i64>());
    case DType::uint8:
      return *data<u8>();
    case DType::boolean:
      return *data<bool>();
    case DType::bf16:
      return widen(*data<BFloat16>());
    case DType::f16:
      return widen(*data<Float16>());
  }
  throw Error(ErrorCode::bug, "[tensor] item() expected one of the element types of DType");
}

Tensor Tensor::reshape(const Shape& shape) const {
  if (!is_contiguous() && shape.elems() == elems()) {  // axes of one element can be added and left out whatever the strides
    Tensor view = *this;
    view.shape_ = view.strides_ = shape;
    int from = 0;
    bool same = true;
    for (int to = 0; to < shape.rank(); ++to) {
      view.strides_.set(to, 1);
      if (shape[to] == 1) continue;
      while (from < rank() && shape_[from] == 1) ++from;
      same = same && from < rank() && shape_[from] == shape[to];
      if (same) view.strides_.set(to, strides_[from++]);
    }
    if (same) return view;
  }
  require_contiguous();
  if (shape.elems() != elems()) {
    throw Error(ErrorCode::bug, "[reshape] expected " + std::to_string(elems()) + " elements, got the shape " + to_string(shape));
  }
  Tensor view = *this;
  view.shape_ = shape;
  view.strides_ = contiguous_strides(shape);
  return view;
}

Tensor Tensor::reinterpret(const Shape& shape, DType dtype) const {
  require_contiguous();
  require(shape.elems() * size_of(dtype) == bytes(), "[reinterpret] expected a shape and type with the same number of bytes");
  return Tensor(storage_, offset_bytes_, shape, dtype);
}

Tensor Tensor::permute(std::initializer_list<int> axes) const {
  require(static_cast<int>(axes.size()) == rank(), "[permute] expected one entry for each axis");
  Tensor view = *this;
  int i = 0;
  unsigned seen = 0;
  for (int axis : axes) {
    seen |= 1u << ((axis < 0 ? axis + rank() : axis) & 31);
    view.shape_.set(i, shape_[axis]);
    view.strides_.set(i++, strides_[axis]);
  }
  require(seen == (1u << rank()) - 1, "[permute] expected each axis exactly once");
  return view;
}

Tensor Tensor::transpose(int a, int b) const {
  Tensor view = *this;
  view.shape_.set(a, shape_[b]);
  view.shape_.set(b, shape_[a]);
  view.strides_.set(a, strides_[b]);
  view.strides_.set(b, strides_[a]);
  return view;
}

Tensor Tensor::slice(int axis, i64 begin, i64 end) const {
  require(0 <= begin && begin <= end && end <= shape_[axis], "[slice] expected a range inside the axis");
  Tensor view = *this;
  view.shape_.set(axis, end - begin);
  view.offset_bytes_ += begin * strides_[axis] * size_of(dtype_);
  return view;
}

Tensor empty(const Shape& shape, DType dtype, const char* what) {
  const Stream& stream = Stream::current();
  Allocation memory = stream.memory->allocate(shape.elems() * size_of(dtype), what);
  return Tensor(Storage::owning(stream.device, std::move(memory)), 0, shape, dtype);
}

Tensor zeros(const Shape& shape, DType dtype, const char* what) {
  Tensor t = empty(shape, dtype, what);
  // The first write to fresh host memory costs a page fault for each page, so several threads share this work.
  constexpr i64 kPieceBytes = 4 * kMiB;
  const auto fill = [&](i64 begin, i64 end) { fill_zeros(t.raw() + begin, end - begin); };
  if (!t.raw()) return t;
  t.device().is_cuda() || t.bytes() <= kPieceBytes ? fill(0, t.bytes()) : Stream::current().for_ranges(t.bytes(), kPieceBytes, fill);
  return t;
}

template <class T>
Tensor tensor_of(std::span<const T> values, const Shape& shape) {
  require(static_cast<i64>(values.size()) == shape.elems(), "[tensor_of] expected as many values as the shape has elements");
  Tensor t = empty(shape, DTypeOf<T>::value);
  if (t.raw()) transfer(t.raw(), reinterpret_cast<const std::byte*>(values.data()), t.bytes());
  return t;
}

Tensor to_current_device(const Tensor& t, const char* what) {
  require(t.is_contiguous(), "[to_current_device] expected a contiguous view");
  Tensor copy = empty(t.shape(), t.dtype(), what);
  if (copy.raw()) transfer(copy.raw(), t.raw(), t.bytes());
  return copy;
}

Tensor to_host(const Tensor& t) {
  require(t.is_contiguous(), "[to_host] expected a contiguous view");
  Tensor copy(Storage::owning(Device::cpu(), MemoryPool::heap().allocate(t.bytes(), "copy of a tensor")), 0, t.shape(), t.dtype());
  transfer(copy.raw(), t.raw(), t.bytes());
  return copy;
}

template Tensor tensor_of<float>(std::span<const float>, const Shape&);
template Tensor tensor_of<double>(std::span<const double>, const Shape&);
template Tensor tensor_of<BFloat16>(std::span<const BFloat16>, const Shape&);
template Tensor tensor_of<Float16>(std::span<const Float16>, const Shape&);
template Tensor tensor_of<i32>(std::span<const i32>, const Shape&);
template Tensor tensor_of<i64>(std::span<const i64>, const Shape&);
template Tensor tensor_of<u8>(std::span<const u8>, const Shape&);

}  // namespace spillway
