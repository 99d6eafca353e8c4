// Where a rank meets the other data-parallel ranks.
#include <algorithm>

#include "base/error.h"
#include "parallel/rank.h"

namespace spillway::parallel {

// Into a slot from where each rank has its part; or, after the Steps, into what every rank has whole.
void Rank::gather(const Instruction& i) {
  const bool stepped = i.out.bytes == 0;
  if (stepped && steps_ == Steps::idle) return;
  const Group& group = plan_.layout.groups[i.group];
  offload::Blob& blob = state_.weights(i.group);
  const i64 tile_bytes = blob.tile_bytes();
  const auto all = stepped ? blob.view(whole(group), step_from_ + 1) : bytes(i.out);
  std::span<const std::byte> mine = bytes(i.in);
  if (i.in.bytes == 0) mine = blob.view(i.tiles, stepped ? step_from_ + 1 : state_.generation());
  data_ranks_->all_gather(mine, all, sharding().parts(group, tile_bytes)).wait();
  exchanged_bytes_ += i.exchanged_bytes;
  if (!stepped) fill_group(i.group, all.data());
}

void Rank::exchange(const Instruction& i) {
  const Group& group = plan_.layout.groups[i.group];
  const DType dtype = format().gradient;
  const std::span<std::byte> all(gradient(i.in, {i.group, i.use}), static_cast<size_t>(group.elems * size_of(dtype)));
  if (!sharding().splits_state()) {
    data_ranks_->all_reduce(all, dtype, Reduction::sum).wait();
  } else {
    const i64 tile_bytes = kTileElems * size_of(dtype);
    const auto mine = all.subspan(static_cast<size_t>(i.tiles.begin * tile_bytes), static_cast<size_t>(i.tiles.count() * tile_bytes));
    data_ranks_->reduce_scatter(all, mine, dtype, sharding().parts(group, kTileElems)).wait();
  }
  exchanged_bytes_ += i.exchanged_bytes;
}

// Every rank gets every rank's loss and tile sums, and adds them in one order.
void Rank::agree() {
  loss_sum_ = runner_.loss_sum();
  if (alone()) return;
  const auto for_own = [&](int rank, auto&& body) {
    for (const Group& g : plan_.layout.groups) {
      if (!g.frozen && sharding().splits_state()) body(std::span(square_sums_[g.id]), sharding().part(whole(g).count(), rank));
    }
  };
  Parts parts{0};
  std::vector<double> all, mine{loss_sum_};
  for (int r = 0; r < sharding().ranks; ++r) {
    i64 count = 1;
    for_own(r, [&](std::span<double>, TileRange tiles) { count += tiles.count(); });
    parts.push_back(parts.back() + count * static_cast<i64>(sizeof(double)));
  }
  for_own(sharding().rank,
          [&](std::span<double> sums, TileRange t) { mine.insert(mine.end(), sums.begin() + t.begin, sums.begin() + t.end); });
  all.resize(static_cast<size_t>(parts.back()) / sizeof(double));
  data_ranks_->all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), parts).wait();
  auto next = all.begin();
  loss_sum_ = 0;
  for (int r = 0; r < sharding().ranks; ++r) {
    loss_sum_ += *next++;
    for_own(r, [&](std::span<double> sums, TileRange tiles) {
      std::copy_n(next, tiles.count(), sums.begin() + tiles.begin);
      next += tiles.count();
    });
  }
}

void Rank::tell_peers(const std::exception_ptr& error) const {
  if (alone()) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    data_ranks_->abort(e.what());
  }
}

}  // namespace spillway::parallel
