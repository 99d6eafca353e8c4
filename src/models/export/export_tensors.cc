#include "models/export/export_tensors.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "data/weights/mxfp4.h"
#include "device/stream.h"
#include "models/part_reader.h"

namespace spillway::models {
namespace {

using Axis = nn::StoredPart::Axis;

constexpr i64 kWindowBytes = 4 * kMiB;  // the bytes of a larger tensor that a thread joins at a time

DType joined(DType one, DType other) {
  if (one == other) return one;
  return one == DType::f64 || other == DType::f64 ? DType::f64 : DType::f32;
}

// A range of elements of the larger tensor, to be filled from its parts.
struct Window {
  i64 begin = 0, end = 0, width = 0;  // elements [begin, end) of `width` bytes
  std::vector<std::byte> bytes, run;
  i64 filled = 0;  // the number of elements that are filled
};

struct Part {
  const nn::Parameter* parameter;
  std::vector<Axis> axes;
  i64 begin = 0, end = 0;  // the range of the larger tensor in which all elements lie
};

// Fills a window with the elements of a part that lie in it. Elements that are consecutive in the parameter are read at once.
class Filling {
 public:
  Filling(const WeightSource& source, DType dtype, const Part& part, Window& window)
      : source_(source), dtype_(dtype), part_(part), window_(window) {}
  void run() { fill_axis(0, 0, part_.begin); }

 private:
  // Fills from the elements whose indices along the axes before `a` are chosen: the first of them is element `at` of the parameter and
  // element `whole` of the larger tensor.
  void fill_axis(size_t a, i64 at, i64 whole) {
    const Axis& axis = part_.axes[a];
    i64 reach = 1, each = 1;  // the range of the larger tensor, and the elements of the parameter, at one index of this axis
    for (size_t inner = a + 1; inner < part_.axes.size(); ++inner) {
      reach += (part_.axes[inner].extent - 1) * part_.axes[inner].stride;
      each *= part_.axes[inner].extent;
    }
    const i64 before = window_.begin - whole - reach + 1;
    const i64 first = before > 0 ? ceil_div(before, axis.stride) : 0;
    const i64 last = std::min(axis.extent, window_.end > whole ? ceil_div(window_.end - whole, axis.stride) : 0);
    if (first >= last) return;
    if (a + 1 == part_.axes.size()) return fill_run(at + first, whole + first * axis.stride, last - first, axis.stride);
    for (i64 i = first; i < last; ++i) fill_axis(a + 1, at + i * each, whole + i * axis.stride);
  }

  void fill_run(i64 at, i64 whole, i64 count, i64 stride) {
    const i64 width = window_.width;
    window_.filled += count;
    std::byte* const to = window_.bytes.data() + (whole - window_.begin) * width;
    if (stride == 1) return source_.read_as(*part_.parameter, at, dtype_, {to, static_cast<size_t>(count * width)});
    window_.run.resize(static_cast<size_t>(count * width));
    source_.read_as(*part_.parameter, at, dtype_, window_.run);
    for (i64 i = 0; i < count; ++i) std::memcpy(to + i * stride * width, window_.run.data() + i * width, static_cast<size_t>(width));
  }

  const WeightSource& source_;
  const DType dtype_;
  const Part& part_;
  Window& window_;
};

}  // namespace

ExportPlace first_place(const nn::Parameter& parameter, DType dtype) {
  if (!parameter.is_part()) return {parameter.name, nullptr, dtype};
  return {parameter.stored.front().tensor, &parameter.stored.front(), dtype};
}

std::vector<ExportTensor> export_tensors(const nn::Sequential& model, const std::function<ExportPlace(const nn::Parameter&)>& place) {
  std::vector<ExportTensor> tensors;
  std::map<std::string, size_t> larger;  // the indices of the tensors that have parts
  for (const auto& p : model.parameters) {
    const auto [name, part, dtype] = place(*p);
    if (part == nullptr) {
      tensors.push_back({name, p->shape, dtype, {{p.get(), nullptr}}});
      continue;
    }
    const auto [entry, is_new] = larger.emplace(name, tensors.size());
    if (is_new) tensors.push_back({name, part->shape, dtype, {}, part->scales});
    ExportTensor& tensor = tensors[entry->second];
    require(tensor.shape == part->shape, "[export] expected all parts of a tensor to give it the same shape");
    tensor.dtype = joined(tensor.dtype, dtype);
    tensor.members.push_back({p.get(), part});
  }
  return tensors;
}

void write_tensor(const WeightSource& source, const ExportTensor& tensor, const WriteBytes& write) {
  if (tensor.members.front().part == nullptr) return write_bytes(source, *tensor.members.front().parameter, tensor.dtype, write);
  std::vector<Part> parts;
  for (const auto& [parameter, stored] : tensor.members) {
    Part part{parameter, merged_axes(*stored, parameter->elems()), stored->first, stored->first + 1};
    for (const Axis& axis : part.axes) part.end += (axis.extent - 1) * axis.stride;
    parts.push_back(std::move(part));
  }
  const i64 width = size_of(tensor.dtype), elems = tensor.shape.elems(), piece = kWindowBytes / width;
  const Stream& stream = Stream::current();
  std::vector<Window> of_thread(static_cast<size_t>(stream.thread_count()));
  stream.run(ceil_div(elems, piece), [&](i64 number, int thread) {
    Window& window = of_thread[static_cast<size_t>(thread)];
    window.begin = number * piece, window.end = std::min(elems, window.begin + piece), window.width = width, window.filled = 0;
    window.bytes.resize(static_cast<size_t>((window.end - window.begin) * width));
    for (const Part& part : parts) {
      if (part.begin < window.end && part.end > window.begin) Filling(source, tensor.dtype, part, window).run();
    }
    require(window.filled == window.end - window.begin, "[export] expected the parameters to fill the tensor of which they are parts");
    write(window.begin * width, window.bytes);
  });
}

void write_mxfp4(const WeightSource& source, const ExportTensor& tensor, const WriteBytes& blocks, const WriteBytes& scales) {
  ExportTensor wide = tensor;
  wide.dtype = DType::f32;
  write_tensor(source, wide, [&](i64 offset, std::span<const std::byte> bytes) {
    const i64 begin = offset / size_of(DType::f32), elems = std::ssize(bytes) / size_of(DType::f32);
    std::vector<float> values(static_cast<size_t>(elems));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    std::vector<std::byte> codes(static_cast<size_t>(elems / 2)), exponents(static_cast<size_t>(elems / data::kMxfp4Block));
    data::encode_mxfp4(values, codes, exponents);
    blocks(begin / 2, codes);
    scales(begin / data::kMxfp4Block, exponents);
  });
}

std::vector<data::TensorInfo> ExportTensor::infos() const {
  if (scales.empty()) return {{.name = name, .dtype = dtype, .shape = shape}};
  return {{.name = name, .dtype = DType::uint8, .shape = data::mxfp4_blocks_shape(shape)},
          {.name = scales, .dtype = DType::uint8, .shape = data::mxfp4_scales_shape(shape)}};
}

i64 ExportTensor::bytes() const {
  i64 all = 0;
  for (const data::TensorInfo& info : infos()) all += info.shape.elems() * size_of(info.dtype);
  return all;
}

}  // namespace spillway::models
