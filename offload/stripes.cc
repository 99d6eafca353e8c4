#include "offload/stripes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "offload/store_format.h"

namespace spillway::offload {

Stripes::Stripes(std::vector<u32> weights, i64 unit_bytes, i64 data_bytes)
    : weights_(std::move(weights)), unit_bytes_(unit_bytes), data_bytes_(data_bytes) {
  require(files() >= 1 && files() <= kMaxStripes, "[stripes] expected 1 to 64 files");
  for (const u32 weight : weights_) require(weight >= 1 && weight <= kMaxWeight, "[stripes] expected weights from 1 to 65535");
  require(unit_bytes > 0 && unit_bytes % kPageBytes == 0, "[stripes] expected a stripe unit that is a multiple of the page size");
  require(data_bytes >= 0 && data_bytes % kPageBytes == 0, "[stripes] expected a data size that is a multiple of the page size");
  deal_round();
}

// Assigns the units of one round to the files by smooth weighted round-robin.
void Stripes::deal_round() {
  const u32 divisor = std::accumulate(weights_.begin(), weights_.end(), u32{0}, [](u32 a, u32 b) { return std::gcd(a, b); });
  for (const u32 weight : weights_) per_round_.push_back(weight / divisor);
  const i64 units = std::accumulate(per_round_.begin(), per_round_.end(), i64{0});
  std::vector<i64> credit(weights_.size(), 0), dealt(weights_.size(), 0);
  for (i64 unit = 0; unit < units; ++unit) {
    for (size_t f = 0; f < credit.size(); ++f) credit[f] += per_round_[f];
    const auto most = static_cast<size_t>(std::max_element(credit.begin(), credit.end()) - credit.begin());
    credit[most] -= units;
    round_.push_back({static_cast<i64>(most), dealt[most]++});
  }
}

i64 Stripes::file_data_bytes(i64 file) const {
  const i64 round_bytes = std::ssize(round_) * unit_bytes_;
  i64 bytes = data_bytes_ / round_bytes * per_round_[static_cast<size_t>(file)] * unit_bytes_;
  i64 left = data_bytes_ % round_bytes;
  for (const Place& place : round_) {
    if (place.file == file) bytes += std::min(left, unit_bytes_);
    left = std::max<i64>(0, left - unit_bytes_);
  }
  return bytes;
}

std::vector<Stripes::Extent> Stripes::extents(i64 begin, i64 bytes) const {
  require(begin >= 0 && bytes >= 0 && bytes <= data_bytes_ - begin, "[stripes] expected a range inside the store's data");
  std::vector<Extent> all;
  while (bytes > 0) {
    const i64 unit = begin / unit_bytes_, inside = begin % unit_bytes_, round = unit / std::ssize(round_);
    const Place& place = round_[static_cast<size_t>(unit % std::ssize(round_))];
    const i64 count = std::min(bytes, unit_bytes_ - inside);
    const i64 offset = (round * per_round_[static_cast<size_t>(place.file)] + place.rank) * unit_bytes_ + inside;
    if (!all.empty() && all.back().file == place.file && all.back().offset + all.back().bytes == offset) {
      all.back().bytes += count;
    } else {
      all.push_back({place.file, offset, count});
    }
    begin += count;
    bytes -= count;
  }
  return all;
}

}  // namespace spillway::offload
