#include "tensor/print.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <vector>

#include "tensor/create.h"

namespace spillway {
namespace {

constexpr i64 kEdge = 3;  // the number of elements shown at each end of an axis that is shortened

// Chooses one format for all numbers of a tensor, as PyTorch does, so that columns line up.
class NumberText {
 public:
  NumberText(const std::vector<double>& values, DType dtype) : dtype_(dtype) {
    double largest = 0, least = INFINITY;
    for (const double x : values) {
      if (!std::isfinite(x) || x == 0) continue;
      whole_ = whole_ && std::trunc(x) == x;
      largest = std::max(largest, std::abs(x));
      least = std::min(least, std::abs(x));
    }
    powers_ = largest > 1e8 || largest / least > 1000 || (!whole_ && least < 1e-4);
    for (const double x : values) width_ = std::max(width_, number(x).size());
  }
  std::string operator()(double x) const {
    const std::string text = number(x);
    return std::string(width_ - text.size(), ' ') + text;
  }

 private:
  std::string number(double x) const {
    if (dtype_ == DType::boolean) return x != 0 ? "true" : "false";
    if (std::isnan(x)) return "nan";
    if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
    char text[48];
    std::snprintf(text, sizeof text, !is_floating(dtype_) ? "%.0f" : powers_ ? "%.4e" : whole_ ? "%.0f." : "%.4f", x);
    return text;
  }
  DType dtype_;
  bool whole_ = true, powers_ = false;
  size_t width_ = 0;
};

struct Shown {
  const Shape& shape;
  const std::vector<double>& values;  // all elements of the tensor in row-major order
  bool shortened = values.size() > static_cast<size_t>(kShownWhole);

  bool left_out(int axis, i64 i) const { return shortened && i >= kEdge && i < shape[axis] - kEdge; }
  i64 elems_behind(int axis) const {
    i64 elems = 1;
    for (int i = axis + 1; i < shape.rank(); ++i) elems *= shape[i];
    return elems;
  }
  // Appends to `numbers` the numbers that will be shown of one part of the tensor. The part begins at element `first` and spans the axes
  // from `axis` on.
  void collect(int axis, i64 first, std::vector<double>& numbers) const {
    if (axis == shape.rank()) return numbers.push_back(values[static_cast<size_t>(first)]);
    for (i64 i = 0; i < shape[axis]; ++i) {
      if (!left_out(axis, i)) collect(axis + 1, first + i * elems_behind(axis), numbers);
    }
  }
  std::string text(int axis, i64 first, const NumberText& number) const {
    if (axis == shape.rank()) return number(values[static_cast<size_t>(first)]);
    const int deeper = shape.rank() - 1 - axis;
    const std::string between =
        deeper == 0 ? ", " : "," + std::string(static_cast<size_t>(deeper), '\n') + std::string(static_cast<size_t>(axis) + 1, ' ');
    std::string text = "[";
    for (i64 i = 0; i < shape[axis]; ++i) {
      if (left_out(axis, i) && i > kEdge) continue;
      if (i > 0) text += between;
      text += left_out(axis, i) ? (deeper == 0 ? " ..." : "...") : this->text(axis + 1, first + i * elems_behind(axis), number);
    }
    return text + "]";
  }
};

}  // namespace

std::string to_string(const Tensor& t) {
  if (!t.defined()) return "undefined";
  std::string text;
  if (!t.device().is_meta()) {
    const std::vector<double> values = values_of(t);
    const Shown shown{t.shape(), values};
    std::vector<double> numbers;
    shown.collect(0, 0, numbers);
    text = shown.text(0, 0, NumberText(numbers, t.dtype())) + " ";
  }
  text += std::string(to_string(t.dtype())) + " " + to_string(t.shape());
  return t.device() == Device::cpu() ? text : text + " on " + to_string(t.device());
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << to_string(t); }

}  // namespace spillway
