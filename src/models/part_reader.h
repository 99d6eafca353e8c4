// Arithmetic of parameters that a folder stores as parts of larger tensors (nn::StoredPart), and a reader of such parts. Neither holds a
// whole tensor in memory.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "nn/stored_part.h"

namespace spillway::models {

/// Returns the axes of the part with as few of them as possible: axes of extent 1 are left out, and neighbours are merged whose elements
/// follow each other at one stride. The result has at least one axis. Throws Error(bug) if the part does not have `elems` elements or
/// reaches beyond its tensor.
std::vector<nn::StoredPart::Axis> merged_axes(const nn::StoredPart& part, i64 elems);

/// Reads elements of parts. If the innermost elements of a part lie side by side in the whole tensor, they are read directly. Otherwise the
/// part is transposed or interleaved: the reader then reads ranges of the whole tensor of a few KiB, puts the part's elements in order and
/// caches them, 4 MiB at a time and 64 MiB in all. Thread-safe.
class PartReader {
 public:
  /// A function that reads elements of the whole tensor from `begin` on until `out` is full. It is called on the threads that call read().
  using Whole = std::function<void(i64 begin, std::span<std::byte> out)>;

  /// Reads elements [begin, begin + out.size() / width) of a part of `elems` elements of `width` bytes each. `tensor` tells whole tensors
  /// apart: for equal names, `whole` must read equal elements.
  void read(const nn::StoredPart& part, i64 elems, const std::string& tensor, i64 width, const Whole& whole, i64 begin,
            std::span<std::byte> out) const;

 private:
  struct Band;
  std::shared_ptr<Band> band_at(const std::string& tensor, i64 first) const;

  mutable std::mutex mutex_;
  mutable std::list<std::shared_ptr<Band>> bands_;  // the cache, with the band that was used last in front
};

}  // namespace spillway::models
