#include "parallel/blocks/spill_door.h"

#include <algorithm>
#include <map>
#include <utility>

#include "device/stream.h"
#include "device/transfer.h"

namespace spillway::parallel {
namespace {

constexpr i64 kAlignment = 64;

}  // namespace

u64 SpillDoor::pack(Tensor saved) {
  saved_.push_back(std::move(saved));
  return saved_.size() - 1;
}

Tensor SpillDoor::unpack(u64 packed) { return std::exchange(saved_.at(packed), Tensor()); }

std::vector<std::shared_ptr<Storage>> SpillDoor::held_alone() const {
  std::map<const Storage*, long> here;
  for (const Tensor& t : saved_) {
    if (t.defined()) ++here[t.storage().get()];
  }
  std::vector<std::shared_ptr<Storage>> alone;
  for (const Tensor& t : saved_) {
    if (!t.defined() || !t.storage()->owning()) continue;
    const long count = std::exchange(here[t.storage().get()], -1);  // the count becomes -1, so that each storage is listed only once
    if (count == t.storage().use_count()) alone.push_back(t.storage());
  }
  return alone;
}

i64 SpillDoor::spillable_bytes() const {
  i64 bytes = 0;
  for (const auto& s : held_alone()) bytes += round_up(s->bytes(), kAlignment);
  return bytes;
}

void SpillDoor::spill(std::byte* to) {
  spilled_ = held_alone();
  i64 at = 0;
  for (const auto& s : spilled_) {
    if (!s->device().is_meta()) put_transfer(to + at, s->data(), s->bytes());
    at += round_up(s->bytes(), kAlignment);
    s->drop();
  }
}

void SpillDoor::restore(const std::byte* from) {
  i64 at = 0;
  for (const auto& s : spilled_) {
    s->refill(Stream::current().memory->allocate(s->bytes(), "restored activations"));
    if (!s->device().is_meta()) put_transfer(s->data(), from + at, s->bytes());
    at += round_up(s->bytes(), kAlignment);
  }
  spilled_.clear();
}

}  // namespace spillway::parallel
