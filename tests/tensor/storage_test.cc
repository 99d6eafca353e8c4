#include "tensor/storage.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "device/memory_pool.h"
#include "tensor/tensor.h"

namespace spillway::storage_test {
namespace {

TEST(Storage, VacantIsFilledAndDroppedAndViewsStayRight) {
  const auto storage = Storage::vacant(Device::cpu(), 16);
  const Tensor whole(storage, 0, {4}, DType::f32), tail = whole.slice(0, 2, 4);  // both tensors are made before the storage has memory
  EXPECT_FALSE(storage->resident());
  EXPECT_THROW(storage->data(), Error);
  EXPECT_THROW(tail.data<float>(), Error);

  alignas(4) std::array<float, 4> here{1, 2, 3, 4}, there{5, 6, 7, 8};
  storage->fill(reinterpret_cast<std::byte*>(here.data()));
  EXPECT_EQ(tail.data<float>()[0], 3);
  storage->drop();
  EXPECT_THROW(tail.raw(), Error);
  storage->fill(reinterpret_cast<std::byte*>(there.data()));
  EXPECT_EQ(tail.data<float>()[1], 8);
  EXPECT_EQ(whole.span<float>()[0], 5);
}

TEST(Storage, FillTwiceAndDropTwiceAreBugs) {
  const auto storage = Storage::vacant(Device::cpu(), 4);
  EXPECT_THROW(storage->drop(), Error);
  std::array<std::byte, 4> bytes{};
  storage->fill(bytes.data());
  EXPECT_THROW(storage->fill(bytes.data()), Error);
  storage->drop();
  EXPECT_THROW(storage->drop(), Error);
}

TEST(Storage, OwningGivesItsMemoryBackWithTheLastView) {
  MemoryPool pool("host", kMiB);
  {
    const auto storage = Storage::owning(Device::cpu(), pool.allocate(4096, "x"));
    const Tensor view(storage, 0, {1024}, DType::f32);
    EXPECT_TRUE(storage->resident());
    EXPECT_EQ(pool.used_bytes(), 4096);
  }
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(Storage, OwningIsDroppedAndRefilledInPlace) {
  MemoryPool pool("host", kMiB);
  const auto storage = Storage::owning(Device::cpu(), pool.allocate(4096, "x"));
  const Tensor view(storage, 256, {64}, DType::f32);
  EXPECT_THROW(storage->refill(pool.allocate(4096, "x")), Error);  // a storage that is not empty cannot be refilled
  storage->drop();
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_THROW(view.raw(), Error);
  EXPECT_THROW(storage->drop(), Error);
  EXPECT_THROW(storage->refill(pool.allocate(2048, "another size")), Error);
  Allocation memory = pool.allocate(4096, "x");
  std::byte* const data = memory.data();
  storage->refill(std::move(memory));
  EXPECT_EQ(view.raw(), data + 256);
  EXPECT_THROW(storage->fill(data), Error);  // a storage that owns its memory cannot be filled with other memory
}

TEST(Storage, OnTheMetaDeviceThereAreNoBytes) {
  const auto storage = Storage::vacant(Device::meta(), i64{1} << 45);
  std::byte byte{};
  storage->fill(&byte);
  EXPECT_EQ(storage->data(), nullptr);
  EXPECT_TRUE(storage->resident());
  storage->drop();
  EXPECT_THROW(storage->data(), Error);
}

}  // namespace
}  // namespace spillway::storage_test
