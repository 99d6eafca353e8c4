#include "tensor/storage.h"

#include "base/error.h"

namespace spillway {

std::shared_ptr<Storage> Storage::owning(Device device, Allocation memory) {
  auto storage = std::shared_ptr<Storage>(new Storage(device, memory.bytes()));
  storage->data_ = memory.data();
  storage->memory_ = std::move(memory);
  storage->resident_ = storage->owning_ = true;
  return storage;
}

std::shared_ptr<Storage> Storage::vacant(Device device, i64 bytes) { return std::shared_ptr<Storage>(new Storage(device, bytes)); }

void Storage::fill(std::byte* data) {
  require(!resident_ && !owning_, "[storage] filled twice without a drop between, or one that owns its memory");
  data_ = device_.is_meta() ? nullptr : data;
  resident_ = true;
}

void Storage::refill(Allocation memory) {
  require(!resident_ && owning_ && memory.bytes() == bytes_, "[storage] refilled, but it was not dropped or the size is another");
  data_ = memory.data();
  memory_ = std::move(memory);
  resident_ = true;
}

void Storage::drop() {
  require(resident_, "[storage] dropped, but it holds nothing");
  memory_.reset();
  data_ = nullptr;
  resident_ = false;
}

std::byte* Storage::data() const {
  require(resident_, "[storage] read while its bytes are elsewhere: a Fetch is missing or a Release came too early");
  return data_;
}

}  // namespace spillway
