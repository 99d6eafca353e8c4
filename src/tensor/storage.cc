#include "tensor/storage.h"

#include <algorithm>

#include "base/error.h"

namespace spillway {
namespace {

// The versions of all storages come from one counter. A storage that borrows
// from different lenders in turn therefore never returns to an earlier version.
u64 next_version() {
  static std::atomic<u64> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

std::shared_ptr<Storage> Storage::owning(Device device, Allocation memory) {
  auto storage = std::shared_ptr<Storage>(new Storage(device, memory.bytes()));
  storage->data_ = memory.data();
  storage->memory_ = std::move(memory);
  storage->resident_ = storage->owning_ = true;
  return storage;
}

std::shared_ptr<Storage> Storage::vacant(Device device, i64 bytes) { return std::shared_ptr<Storage>(new Storage(device, bytes)); }

void Storage::fill(std::byte* data) {
  require(!resident_ && !owning_, "[storage] fill() expected a storage that was created vacant and has no memory now");
  data_ = device_.is_meta() ? nullptr : data;
  resident_ = true;
}

void Storage::borrow(std::shared_ptr<Storage> lender, std::byte* data) {
  fill(data);
  lender_ = std::move(lender);
  version_.store(next_version(), std::memory_order_relaxed);
}

void Storage::refill(Allocation memory) {
  require(!resident_ && owning_ && memory.bytes() == bytes_, "[storage] refill() expected a dropped storage and memory of the same size");
  data_ = memory.data();
  memory_ = std::move(memory);
  resident_ = true;
}

void Storage::drop() {
  require(resident_, "[storage] drop() expected a storage that has memory");
  memory_.reset();
  lender_.reset();
  data_ = nullptr;
  resident_ = false;
}

std::byte* Storage::data() const {
  require(
      resident_,
      "[storage] expected the data in memory when the tensor is read, got none: the Program lacks a Fetch, or a Release came too early");
  return data_;
}

void Storage::written() { (lender_ ? *lender_ : *this).version_.store(next_version(), std::memory_order_relaxed); }

u64 Storage::version() const {
  const u64 own = version_.load(std::memory_order_relaxed);
  return lender_ ? std::max(own, lender_->version_.load(std::memory_order_relaxed)) : own;
}

}  // namespace spillway
