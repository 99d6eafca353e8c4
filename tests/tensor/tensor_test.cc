#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "device/arena.h"
#include "device/memory_pool.h"

namespace spillway::tensor_test {
namespace {

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elems()));
  std::iota(values.begin(), values.end(), 0.0f);
  return tensor_of<float>(values, shape);
}

// Reads the elements of a view one by one, by its strides.
std::vector<float> elements(const Tensor& t) {
  std::vector<float> out;
  std::vector<i64> at(static_cast<size_t>(t.rank()), 0);
  for (i64 n = 0; n < t.elems(); ++n) {
    i64 offset = 0;
    for (int a = 0; a < t.rank(); ++a) offset += at[static_cast<size_t>(a)] * t.stride(a);
    out.push_back(t.data<float>()[offset]);
    for (int a = t.rank() - 1; a >= 0 && ++at[static_cast<size_t>(a)] == t.size(a); --a) at[static_cast<size_t>(a)] = 0;
  }
  return out;
}

TEST(Shape, ExtentsAndErrors) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape.elems(), 24);
  EXPECT_EQ(to_string(shape), "[2, 3, 4]");
  EXPECT_EQ(Shape{}.elems(), 1);
  EXPECT_EQ((Shape{0, 5}.elems()), 0);
  EXPECT_FALSE((Shape{2, 3} == Shape{2, 3, 1}));
  EXPECT_THROW(shape[3], Error);
  EXPECT_THROW(shape[-4], Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), Error);
}

TEST(Shape, AProductThatDoesNotFitIsAnErrorNotAWrap) {
  const i64 big = i64{1} << 40;
  EXPECT_THROW((Shape{big, big}.elems()), Error);
  EXPECT_THROW((Shape{big, i64{1} << 20}.elems()), Error);  // the number of elements fits into 64 bits, but the number of bytes does not
  EXPECT_EQ((Shape{big, i64{1} << 19}.elems()), i64{1} << 59);
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f64), 8);
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_EQ(size_of(DType::boolean), 1);
  EXPECT_EQ(to_string(DType::bf16), "bf16");
  EXPECT_EQ(to_string(DType::int64), "i64");
  EXPECT_TRUE(is_floating(DType::f16));
  EXPECT_FALSE(is_floating(DType::uint8));
}

TEST(Tensor, ViewsOfCountedElements) {
  const Tensor t = counting({2, 3, 4});
  EXPECT_EQ(elements(t.transpose(0, 2)),
            (std::vector<float>{0, 12, 4, 16, 8, 20, 1, 13, 5, 17, 9, 21, 2, 14, 6, 18, 10, 22, 3, 15, 7, 19, 11, 23}));
  EXPECT_EQ(elements(t.permute({2, 1, 0})), elements(t.transpose(0, 2)));
  EXPECT_EQ(elements(t.slice(1, 1, 3)), (std::vector<float>{4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(elements(t.slice(-1, 3, 4).slice(0, 1, 2)), (std::vector<float>{15, 19, 23}));
  EXPECT_EQ(elements(t.reshape({6, 4}).slice(0, 5, 6)), (std::vector<float>{20, 21, 22, 23}));
  EXPECT_EQ(t.transpose(0, 2).storage(), t.storage());  // transposing copies no data
}

TEST(Tensor, AxesOfOneElementComeAndGoWhateverTheStrides) {
  const Tensor t = counting({2, 1, 3, 4}), turned = t.transpose(2, 3);
  for (const Shape& shape : {Shape{2, 4, 3}, Shape{1, 2, 4, 1, 3}, Shape{2, 4, 3, 1}}) {
    EXPECT_EQ(elements(turned.reshape(shape)), elements(turned));
    EXPECT_EQ(turned.reshape(shape).storage(), t.storage());
  }
  EXPECT_EQ(elements(t.slice(3, 1, 2).reshape({2, 3})), (std::vector<float>{1, 5, 9, 13, 17, 21}));
  EXPECT_THROW(turned.reshape({2, 3, 4}), Error);
}

TEST(Tensor, ContiguityIsKnown) {
  const Tensor t = counting({2, 3, 4});
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_TRUE(t.slice(0, 1, 2).is_contiguous());
  EXPECT_FALSE(t.slice(1, 0, 2).is_contiguous());
  EXPECT_TRUE(t.slice(0, 0, 1).slice(1, 1, 3).is_contiguous());  // the stride of an axis of size 1 does not matter
  EXPECT_FALSE(t.transpose(1, 2).is_contiguous());
  EXPECT_TRUE(t.slice(2, 1, 1).is_contiguous());  // a view without elements counts as contiguous
  EXPECT_TRUE(t.slice(2, 1, 1).span<float>().empty());
  EXPECT_THROW(t.transpose(1, 2).reshape({24}), Error);
  EXPECT_THROW(t.transpose(1, 2).span<float>(), Error);
}

TEST(Tensor, WrongUseIsAnError) {
  const Tensor t = counting({2, 3});
  EXPECT_THROW(t.data<double>(), Error);
  EXPECT_THROW(t.slice(0, 1, 3), Error);
  EXPECT_THROW(t.slice(0, 2, 1), Error);
  EXPECT_THROW(t.slice(2, 0, 1), Error);
  EXPECT_THROW(t.reshape({7}), Error);
  EXPECT_THROW(t.permute({0}), Error);
  EXPECT_THROW(t.permute({0, 0}), Error);
  EXPECT_THROW(t.permute({0, 2}), Error);
  EXPECT_THROW(t.item(), Error);
  EXPECT_THROW(Tensor(t.storage(), 4, {2, 3}, DType::f32), Error);
  EXPECT_THROW(Tensor(t.storage(), -4, {1}, DType::f32), Error);
  EXPECT_THROW(Tensor().raw(), Error);
  EXPECT_THROW(tensor_of<float>(std::vector<float>{1, 2}, {3}), Error);
}

TEST(Tensor, ItemOfEveryType) {
  EXPECT_EQ(tensor_of<float>(std::vector<float>{1.5f}, {}).item(), 1.5);
  EXPECT_EQ(tensor_of<double>(std::vector<double>{1e-300}, {1, 1}).item(), 1e-300);
  EXPECT_EQ(tensor_of<i32>(std::vector<i32>{-7}, {1}).item(), -7);
  EXPECT_EQ(tensor_of<i64>(std::vector<i64>{i64{1} << 40}, {1}).item(), 0x1p40);
  EXPECT_EQ(tensor_of<u8>(std::vector<u8>{200}, {1}).item(), 200);
  EXPECT_EQ(tensor_of<Float16>(std::vector{narrow<Float16>(-1.5f)}, {1}).item(), -1.5);
}

TEST(Tensor, ZerosAreZeroAlsoInReusedMemory) {
  MemoryPool pool("host", kMiB);
  const Allocation slab = pool.allocate(64 * kKiB, "slab");
  std::fill_n(slab.data(), slab.bytes(), std::byte{0xff});
  Arena arena(slab.data(), slab.bytes());
  const Stream stream{Device::cpu(), nullptr, &arena};
  const StreamScope scope(stream);
  const Tensor t = zeros({100, 10}, DType::f32);
  for (const float x : t.span<float>()) EXPECT_EQ(x, 0);
  EXPECT_EQ(t.raw(), slab.data());
}

TEST(Tensor, MoreThan2To31ElementsOnTheMetaDevice) {
  Arena arena;
  const Stream stream{Device::meta(), nullptr, &arena};
  const StreamScope scope(stream);
  const i64 rows = i64{1} << 20, columns = (i64{1} << 20) + 3;
  const Tensor t = empty({rows, columns}, DType::f32, "huge");
  EXPECT_EQ(t.elems(), rows * columns);
  EXPECT_EQ(t.bytes(), 4 * rows * columns);
  EXPECT_EQ(arena.peak_bytes(), round_up(t.bytes(), kAllocationAlignment));
  EXPECT_EQ(t.stride(0), columns);
  EXPECT_EQ(t.raw(), nullptr);
  EXPECT_EQ(t.data<float>(), nullptr);
  EXPECT_TRUE(t.span<float>().empty());
  const Tensor turned = t.transpose(0, 1).slice(0, columns - 1, columns);
  EXPECT_EQ(turned.stride(1), columns);
  EXPECT_EQ(t.reshape({columns, rows}).slice(0, columns - 1, columns).elems(), rows);
  EXPECT_THROW(t.reshape({rows, columns - 1}), Error);
  EXPECT_EQ(t.slice(0, 5, 6).slice(1, 7, 8).item(), 0);
  EXPECT_NO_THROW(zeros({rows}, DType::f64));
}

TEST(Tensor, AViewFarIntoAStorageIsAtItsPlace) {
  // The tensor has 6 GiB of untouched pages. Only the two pages that the test writes are ever allocated.
  const i64 elems = (i64{6} << 30) / 4;
  Tensor t;
  try {
    t = empty({elems / 3, 3}, DType::f32, "sparse");
  } catch (const Error& e) {
    GTEST_SKIP() << "the system gives no 6 GiB of address space: " << e.what();
  }
  const Tensor last = t.slice(0, elems / 3 - 1, elems / 3);
  last.data<float>()[2] = 7;
  EXPECT_EQ(last.raw() - t.raw(), (elems - 3) * 4);
  EXPECT_EQ(t.reshape({elems}).slice(0, elems - 1, elems).item(), 7);
}

}  // namespace
}  // namespace spillway::tensor_test
