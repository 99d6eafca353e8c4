#include "models/part_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace spillway::models {
namespace {

using Axis = nn::StoredPart::Axis;

constexpr i64 kBandBytes = 4 * kMiB;
constexpr size_t kBands = 16;

i64 product(std::span<const Axis> axes) {
  i64 elems = 1;
  for (const Axis& axis : axes) elems *= axis.extent;
  return elems;
}

// Returns the offset in the whole tensor of element `index`, counted in row-major order over the axes.
i64 offset_of(std::span<const Axis> axes, i64 index) {
  i64 offset = 0;
  for (size_t a = axes.size(); a-- > 0;) {
    offset += index % axes[a].extent * axes[a].stride;
    index /= axes[a].extent;
  }
  return offset;
}

// The order in which bands of a transposed part are read. The axis `fast` has the smallest stride, so elements along it are the nearest
// neighbours in the whole tensor. A slice is what the part has at one index of `fast` and of the axes before it: its elements are
// consecutive in the part. A band is up to `slices` slices that are neighbours along `fast`.
struct BandOrder {
  BandOrder(std::span<const Axis> axes, i64 width) {
    const auto smallest = std::ranges::min_element(axes, {}, &Axis::stride);
    fast = *smallest;
    outer = axes.first(static_cast<size_t>(smallest - axes.begin()));
    inner = axes.subspan(outer.size() + 1);
    slice_elems = product(inner);
    slices = std::clamp<i64>(kBandBytes / (slice_elems * width), 1, fast.extent);
  }
  std::span<const Axis> outer, inner;
  Axis fast;
  i64 slice_elems, slices;
};

// Copies a [columns, rows] matrix to a [rows, columns] matrix. In the first, columns are `column_step` elements apart and rows `row_step`;
// in the second, rows are `to_step` elements apart and columns side by side.
template <class Element>
void transpose(const std::byte* from, i64 column_step, i64 row_step, std::byte* to, i64 to_step, i64 rows, i64 columns) {
  constexpr i64 kSize = sizeof(Element);
  for (i64 row = 0; row < rows; ++row) {
    for (i64 column = 0; column < columns; ++column)
      std::memcpy(to + (row * to_step + column) * kSize, from + (column * column_step + row * row_step) * kSize, kSize);
  }
}

void transpose(i64 width, const std::byte* from, i64 column_step, i64 row_step, std::byte* to, i64 to_step, i64 rows, i64 columns) {
  if (width == 2) return transpose<u16>(from, column_step, row_step, to, to_step, rows, columns);
  if (width == 4) return transpose<u32>(from, column_step, row_step, to, to_step, rows, columns);
  require(width == 8, "[stored part] expected elements of 2, 4 or 8 bytes");
  transpose<u64>(from, column_step, row_step, to, to_step, rows, columns);
}

// Reads `count` slices from element `first` of the whole tensor on.
std::vector<std::byte> read_band(const BandOrder& order, i64 width, const PartReader::Whole& whole, i64 first, i64 count) {
  constexpr i64 kRanges = 32;  // ranges that are read before they are put in order, so that whole cache lines are written
  const i64 range = (count - 1) * order.fast.stride + 1;
  std::vector<std::byte> bytes(static_cast<size_t>(count * order.slice_elems * width));
  std::vector<std::byte> ranges(static_cast<size_t>(kRanges * range * width));
  for (i64 j = 0; j < order.slice_elems; j += kRanges) {
    const i64 now = std::min(kRanges, order.slice_elems - j);
    for (i64 r = 0; r < now; ++r) {
      whole(first + offset_of(order.inner, j + r),
            std::span(ranges).subspan(static_cast<size_t>(r * range * width), static_cast<size_t>(range * width)));
    }
    transpose(width, ranges.data(), range, order.fast.stride, bytes.data() + j * width, order.slice_elems, count, now);
  }
  return bytes;
}

}  // namespace

std::vector<Axis> merged_axes(const nn::StoredPart& part, i64 elems) {
  std::vector<Axis> merged;
  i64 last = part.first;
  for (const Axis& axis : part.axes) {
    require(axis.extent > 0 && axis.stride > 0, "[stored part] expected positive extents and strides");
    last += (axis.extent - 1) * axis.stride;
    if (axis.extent == 1) continue;
    if (!merged.empty() && merged.back().stride == axis.extent * axis.stride) {
      merged.back() = {merged.back().extent * axis.extent, axis.stride};
    } else {
      merged.push_back(axis);
    }
  }
  if (merged.empty()) merged.push_back({1, 1});
  require(product(merged) == elems && part.first >= 0 && last < part.shape.elems(),
          "[stored part] expected a part with as many elements as the parameter, inside its tensor");
  return merged;
}

struct PartReader::Band {
  std::string tensor;  // which whole tensor, and where in it the band begins
  i64 first = 0;
  std::mutex filling;            // held while the band is read
  std::vector<std::byte> bytes;  // empty until the band is read
};

std::shared_ptr<PartReader::Band> PartReader::band_at(const std::string& tensor, i64 first) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(bands_, [&](const auto& band) { return band->first == first && band->tensor == tensor; });
  if (found != bands_.end()) {
    bands_.splice(bands_.begin(), bands_, found);
  } else {
    if (bands_.size() == kBands) bands_.pop_back();
    bands_.push_front(std::make_shared<Band>());
    bands_.front()->tensor = tensor;
    bands_.front()->first = first;
  }
  return bands_.front();
}

void PartReader::read(const nn::StoredPart& part, i64 elems, const std::string& tensor, i64 width, const Whole& whole, i64 begin,
                      std::span<std::byte> out) const {
  const std::vector<Axis> axes = merged_axes(part, elems);
  const i64 end = begin + std::ssize(out) / width;
  require(begin >= 0 && end <= elems, "[stored part] expected a range inside the parameter");
  const auto bytes_of = [&](i64 at, i64 count) {
    return out.subspan(static_cast<size_t>((at - begin) * width), static_cast<size_t>(count * width));
  };
  if (axes.back().stride == 1) {
    const i64 run = axes.back().extent;
    for (i64 at = begin; at < end;) {
      const i64 count = std::min(end, (at / run + 1) * run) - at;
      whole(part.first + offset_of(axes, at), bytes_of(at, count));
      at += count;
    }
    return;
  }
  const BandOrder order(axes, width);
  for (i64 at = begin; at < end;) {
    const i64 slice = at / order.slice_elems, outer = slice / order.fast.extent;
    const i64 fast = slice % order.fast.extent / order.slices * order.slices, count = std::min(order.slices, order.fast.extent - fast);
    const i64 band_begin = (outer * order.fast.extent + fast) * order.slice_elems, band_end = band_begin + count * order.slice_elems;
    const auto first = part.first + offset_of(order.outer, outer) + fast * order.fast.stride;
    const std::shared_ptr<Band> band = band_at(tensor, first);
    const i64 taken = std::min(end, band_end) - at;
    const std::lock_guard lock(band->filling);
    if (band->bytes.empty()) band->bytes = read_band(order, width, whole, first, count);
    std::memcpy(bytes_of(at, taken).data(), band->bytes.data() + (at - band_begin) * width, static_cast<size_t>(taken * width));
    at += taken;
  }
}

}  // namespace spillway::models
