#include "offload/stripes.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "offload/store_format.h"
#include "tests/offload/support_files.h"

namespace spillway::offload::stripes_test {
namespace {

using test::error_of;

constexpr i64 kUnit = 3 * kPageBytes;

struct Place {
  i64 file = 0, offset = 0;
  bool operator==(const Place&) const = default;
};

// Assigns data to files page by page, directly from the description of the format: files gain credit by weight, the
// file with the most credit (the first of equals) takes the page, and files are filled without gaps.
std::vector<Place> dealt_by_hand(const std::vector<u32>& weights, i64 data_bytes) {
  const i64 sum = std::accumulate(weights.begin(), weights.end(), i64{0});
  std::vector<i64> credit(weights.size(), 0), filled(weights.size(), 0);
  std::vector<Place> pages;
  for (i64 begin = 0; begin < data_bytes; begin += kUnit) {
    size_t taker = 0;
    for (size_t f = 0; f < weights.size(); ++f) {
      credit[f] += weights[f];
      if (credit[f] > credit[taker]) taker = f;
    }
    credit[taker] -= sum;
    for (i64 at = begin; at < std::min(begin + kUnit, data_bytes); at += kPageBytes) {
      pages.push_back({static_cast<i64>(taker), filled[taker]});
      filled[taker] += kPageBytes;
    }
  }
  return pages;
}

TEST(Stripes, EveryPageLiesWhereTheFormatSays) {
  for (const std::vector<u32>& weights : {std::vector<u32>{1}, {5}, {1, 1}, {2, 1}, {10, 20, 30}, {7, 3, 5, 1}, {2731, 1999}}) {
    const i64 data_bytes = 100 * kUnit + 2 * kPageBytes;
    const Stripes stripes(weights, kUnit, data_bytes);
    const std::vector<Place> expected = dealt_by_hand(weights, data_bytes);
    std::vector<i64> pages_of(weights.size(), 0);
    for (i64 page = 0; page < std::ssize(expected); ++page) {
      const auto extents = stripes.extents(page * kPageBytes, kPageBytes);
      ASSERT_EQ(extents.size(), 1u);
      ASSERT_EQ((Place{extents[0].file, extents[0].offset}), expected[static_cast<size_t>(page)]) << "page " << page;
      ++pages_of[static_cast<size_t>(extents[0].file)];
    }
    for (size_t f = 0; f < weights.size(); ++f) {
      EXPECT_EQ(stripes.file_data_bytes(static_cast<i64>(f)), pages_of[f] * kPageBytes);
    }
  }
}

TEST(Stripes, SharesAreInProportionToTheWeights) {
  const Stripes stripes({3000, 1000, 2000}, kUnit, 6000 * kUnit);
  EXPECT_EQ(stripes.file_data_bytes(0), 3000 * kUnit);
  EXPECT_EQ(stripes.file_data_bytes(1), 1000 * kUnit);
  const auto extents = stripes.extents(0, 6 * kUnit);  // the ratio of the weights holds in every short stretch too
  EXPECT_EQ(std::count_if(extents.begin(), extents.end(), [](const auto& e) { return e.file == 1; }), 1);
}

TEST(Stripes, ARangeIsItsPagesInOrder) {
  const Stripes stripes({3, 2}, kUnit, 60 * kUnit);
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    const i64 begin = random() % (59 * 3) * kPageBytes, bytes = (1 + random() % 3 * 3) * kPageBytes;
    i64 at = begin;
    for (const Stripes::Extent& extent : stripes.extents(begin, std::min(bytes, 60 * kUnit - begin))) {
      for (i64 inside = 0; inside < extent.bytes; inside += kPageBytes, at += kPageBytes) {
        const auto page = stripes.extents(at, kPageBytes).front();
        ASSERT_EQ((Place{extent.file, extent.offset + inside}), (Place{page.file, page.offset}));
      }
    }
    ASSERT_EQ(at, std::min(begin + bytes, 60 * kUnit));
  }
}

TEST(Stripes, OneFileGetsWholeRanges) {
  const Stripes stripes({9}, kUnit, 20 * kUnit);
  const auto extents = stripes.extents(kPageBytes, 15 * kUnit);
  ASSERT_EQ(extents.size(), 1u);
  EXPECT_EQ(extents[0].offset, kPageBytes);
  EXPECT_EQ(extents[0].bytes, 15 * kUnit);
  EXPECT_TRUE(stripes.extents(20 * kUnit, 0).empty());
}

TEST(Stripes, SenselessOnesAreBugs) {
  const auto code = [](const std::vector<u32>& weights, i64 unit, i64 bytes) {
    return error_of([&] { Stripes(weights, unit, bytes); }).code;
  };
  EXPECT_EQ(code({}, kUnit, kUnit), ErrorCode::bug);
  EXPECT_EQ(code({1, 0}, kUnit, kUnit), ErrorCode::bug);
  EXPECT_EQ(code({70000}, kUnit, kUnit), ErrorCode::bug);
  EXPECT_EQ(code(std::vector<u32>(65, 1), kUnit, kUnit), ErrorCode::bug);
  EXPECT_EQ(code({1}, 1000, kUnit), ErrorCode::bug);
  EXPECT_EQ(code({1}, kUnit, 100), ErrorCode::bug);
  const Stripes stripes({1, 1}, kUnit, kUnit);
  EXPECT_EQ(error_of([&] { stripes.extents(kPageBytes, kUnit); }).code, ErrorCode::bug);
  EXPECT_EQ(error_of([&] { stripes.extents(-1, 1); }).code, ErrorCode::bug);
}

}  // namespace
}  // namespace spillway::offload::stripes_test
