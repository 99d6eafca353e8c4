// Tests random augmentation of training images: where pixels move, and that the result depends only on the seed and the row's number.
#include "data/loader/augment.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "data/loader/image_source.h"
#include "data/loader/loader.h"

namespace spillway::data::augment_test {
namespace {

// Serves images of known pixels: pixel (c, y, x) of image i is 1 + 25 c + 5 y + x + i, and the class of image i is i.
class Numbered final : public ImageSource {
 public:
  const std::string& name() const override { return name_; }
  i64 images() const override { return 12; }
  const ImageFormat& format() const override { return format_; }
  i32 read(i64 image, std::span<u8> pixels_CHW) const override {
    for (size_t i = 0; i < pixels_CHW.size(); ++i) pixels_CHW[i] = static_cast<u8>(1 + static_cast<i64>(i) + image);
    return static_cast<i32>(image);
  }

 private:
  const std::string name_ = "numbered";
  const ImageFormat format_{{2, 5, 5}, 12, {}};
};

// Computes the reference in another way: paints the image into a black frame, cuts out a window, and mirrors it.
std::vector<u8> by_hand(const std::vector<u8>& pixels, int top, int left, bool flipped) {
  std::vector<u8> changed;
  for (size_t c = 0; c < 2; ++c) {
    std::map<std::pair<int, int>, u8> frame;
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 5; ++x) frame[{y + 4, x + 4}] = pixels[c * 25 + static_cast<size_t>(5 * y + x)];
    }
    for (int y = 0; y < 5; ++y) {
      std::vector<u8> row;
      for (int x = 0; x < 5; ++x) row.push_back(frame[{top + y, left + x}]);
      if (flipped) std::reverse(row.begin(), row.end());
      changed.insert(changed.end(), row.begin(), row.end());
    }
  }
  return changed;
}

TEST(Augment, AWindowInABorderMirroredInHalfOfTheCases) {
  std::vector<u8> pixels(50), changed(50);
  Numbered().read(0, pixels);
  const auto word = [](int place) { return static_cast<u32>((u64{static_cast<u32>(place)} << 32) / 9 + 1); };
  for (int top = 0; top < 9; ++top) {
    for (int left = 0; left < 9; ++left) {
      for (const bool flipped : {false, true}) {
        crop_and_flip(pixels, {2, 5, 5}, 4, {word(top), word(left), flipped ? 0x80000000u : 0x7fffffffu, 0}, changed);
        EXPECT_EQ(changed, by_hand(pixels, top, left, flipped)) << top << " " << left << " " << flipped;
      }
    }
  }
}

struct AugmentedLoader : testing::Test {
  AugmentedLoader() { sources.push_back(std::make_unique<Numbered>()); }
  Loader loader(LoaderOptions options, const std::optional<Augmentation>& key = Augmentation{4, RandomKey{3}}) const {
    options.seed = 5;
    return Loader(images_of(sources, DType::f32, key), options);
  }
  // Returns the pixels of all images from `cursor` to the end of the second epoch, by sample number, as `ranks` ranks load them.
  std::vector<std::vector<float>> seen(int ranks, i64 rows, int workers, i64 cursor = 0) const {
    std::vector<std::vector<float>> all(24);
    for (int rank = 0; rank < ranks; ++rank) {
      const Loader one =
          loader({.micro_batch_size = rows, .micro_batches = 12 / ranks / rows, .rank = rank, .ranks = ranks, .workers = workers});
      for (i64 at = cursor; at < 24; at = one.cursor_after(at)) {
        for (const MicroBatch& m : one.step(at).micro_batches) {
          for (i64 row = 0; row < rows; ++row) {
            const i32 target = m.targets_BT.span<i32>()[static_cast<size_t>(row)];
            if (target == kIgnoredTarget) continue;
            const auto pixels = m.images_NCHW.span<float>().subspan(static_cast<size_t>(50 * row), 50);
            std::vector<float>& to = all[static_cast<size_t>(m.first_sample + row - cursor)];
            to.assign(pixels.begin(), pixels.end());
            to.push_back(static_cast<float>(target));
          }
        }
      }
    }
    return all;
  }
  std::vector<std::unique_ptr<ImageSource>> sources;
};

TEST_F(AugmentedLoader, TheSameOnAnyRanksRowsWorkersAndAfterAStop) {
  const auto want = seen(1, 12, 1);
  EXPECT_EQ(seen(1, 4, 1), want);
  EXPECT_EQ(seen(2, 3, 1), want);
  EXPECT_EQ(seen(4, 3, 3), want);
  EXPECT_EQ(seen(1, 12, 5), want);
  const auto later = seen(1, 12, 2, 6);  // starts at row 6, as a resumed run would
  for (size_t i = 0; i < 18; ++i) EXPECT_EQ(later[i], want[i + 6]);
  EXPECT_EQ(std::set(want.begin(), want.end()).size(), 24u) << "each image of the second epoch is another one than in the first";
}

// If augmentation adds no border, an image is either unchanged or mirrored.
TEST_F(AugmentedLoader, FlipsAlone) {
  const Loader flips = loader({.micro_batch_size = 12, .shuffled = false}, Augmentation{0, RandomKey{3}}),
               plain = loader({.micro_batch_size = 12, .shuffled = false}, {});
  const MicroBatch got = flips.step(0).micro_batches[0], want = plain.step(0).micro_batches[0];
  int flipped = 0;
  for (size_t row = 0; row < 12 * 2 * 5; ++row) {
    const auto line = got.images_NCHW.span<float>().subspan(5 * row, 5), whole = want.images_NCHW.span<float>().subspan(5 * row, 5);
    const bool mirrored = std::equal(line.rbegin(), line.rend(), whole.begin());
    EXPECT_TRUE(mirrored || std::ranges::equal(line, whole)) << row;
    flipped += mirrored;
  }
  EXPECT_GT(flipped, 20) << "of 120 lines";
  EXPECT_LT(flipped, 100);
  EXPECT_EQ(flipped % 10, 0) << "all lines of an image";
}

TEST_F(AugmentedLoader, WithoutAKeyNothingChanges) {
  const Loader plain = loader({.micro_batch_size = 3, .shuffled = false}, {});
  EXPECT_EQ(plain.step(0).micro_batches[0].images_NCHW.span<float>()[50], (2 / 255.0f - 0.5f) / 0.5f);
}

}  // namespace
}  // namespace spillway::data::augment_test
