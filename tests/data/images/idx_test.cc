// Tests IDX files, plain and gzipped: what is read and what is refused.
#include "data/images/idx.h"

#include "data/images/open_images.h"
#include "tests/data/images/support_images.h"

namespace spillway::data::idx_test {
namespace {

using test::error_of;
using test::put;

struct IdxTest : testing::Test {
  const test::TemporaryFolder at;
  std::string pair(const std::string& images, const std::string& labels) const {
    put(at / "x-labels-idx1-ubyte", labels);
    return put(at / "x-images-idx3-ubyte", images).string();
  }
  static std::string refused(const std::string& path) {
    return error_of(ErrorCode::data, [&] { open_images({path}, Split::training); });
  }
  void expect_refused(const std::string& images, const std::string& labels, const std::string& says) const {
    const std::string got = refused(pair(images, labels));
    EXPECT_NE(got.find(says), std::string::npos) << got;
  }
};

TEST_F(IdxTest, AFolderHasTrainingAndHeldOutImages) {
  put(at / "train-images-idx3-ubyte.gz", gzipped(idx_images(23, 5, 4)));
  put(at / "train-labels-idx1-ubyte.gz", gzipped(idx_labels(23)));
  put(at / "t10k-images-idx3-ubyte", idx_images(3, 5, 4));
  put(at / "t10k-labels-idx1-ubyte.gz", gzipped(idx_labels(3)));
  const auto training = open_images({at.path().string()}, Split::training);
  const ImageFormat wanted{{1, 5, 4}, 10, {}};
  EXPECT_EQ(training[0]->format(), wanted);
  EXPECT_EQ(training[0]->images(), 23);
  std::vector<u8> pixels(20);
  for (const i64 image : {0, 13, 22}) {
    EXPECT_EQ(training[0]->read(image, pixels), image % 10);
    for (i64 p = 0; p < 20; ++p) EXPECT_EQ(pixels[static_cast<size_t>(p)], static_cast<u8>(7 * image + p));
  }
  const auto held_out = open_images({at.path().string()}, Split::held_out, {.format = wanted});
  EXPECT_EQ(held_out[0]->images(), 3);
  EXPECT_EQ(held_out[0]->read(2, pixels), 2);
  EXPECT_EQ(pixels[19], 14 + 19);
  std::filesystem::remove(at / "t10k-images-idx3-ubyte");
  EXPECT_NE(error_of(ErrorCode::usage, [&] { open_images({at.path().string()}, Split::held_out); }).find("expected t10k-images-idx3-ubyte"),
            std::string::npos);
}

TEST_F(IdxTest, HeadersAreHeldToTheFiles) {
  expect_refused(idx_images(3, 5, 4).substr(0, 15), idx_labels(3),
                 "x-images-idx3-ubyte: expected an IDX header of 16 bytes, got a file of 15 bytes");
  expect_refused(idx_labels(3) + std::string(20, '\0'), idx_labels(3), "begins with 0x00000803, got 0x00000801");
  expect_refused(idx_images(3, 5, 4) + "x", idx_labels(3), "expected 76 bytes, as the header says, got 77");
  expect_refused(big_endian({0x803, 0, 5, 4}), idx_labels(0), "from 1 to 4294967295 images, got 0 (byte 4)");
  expect_refused(big_endian({0x803, 0xffffffff, 16384, 16384}), idx_labels(3), "expected 1152921504338411536 bytes");
  expect_refused(big_endian({0x803, 1, 16385, 1}) + std::string(16385, 'x'), idx_labels(1),
                 "from 1 to 16384 rows and columns, got 16385 (byte 8)");
  expect_refused(idx_images(3, 5, 4), idx_labels(4), "x-labels-idx1-ubyte: expected 3 labels");
  expect_refused(idx_images(3, 5, 4), idx_labels(3).substr(0, 10), "x-labels-idx1-ubyte: expected 11 bytes");
  std::filesystem::remove(at / "x-labels-idx1-ubyte");
  EXPECT_NE(refused((at / "x-images-idx3-ubyte").string()).find("expected x-labels-idx1-ubyte or x-labels-idx1-ubyte.gz beside"),
            std::string::npos);
}

// Reads gzipped IDX files. A decompression bomb is refused before memory is allocated, and gzip's checksum reveals damage.
TEST_F(IdxTest, PackedOnesToo) {
  put(at / "x-labels-idx1-ubyte", idx_labels(3));
  const auto expect = [&](const std::string& bytes, const std::string& says) {
    const std::string got = refused(put(at / "x-images-idx3-ubyte.gz", bytes).string());
    EXPECT_NE(got.find(says), std::string::npos) << got;
  };
  const std::string good = gzipped(idx_images(3, 5, 4));
  expect(gzipped(big_endian({0x803, 0xffffffff, 16384, 16384})), "which cannot hold them");
  expect(gzipped(idx_images(3, 5, 4) + "x"), "than the header says");
  expect(gzipped(idx_images(3, 5, 4).substr(0, 70)), "expected 6 more bytes");
  expect(good.substr(0, good.size() - 9), "cut short");
  std::string bad = good;
  bad[bad.size() - 8] = static_cast<char>(bad[bad.size() - 8] ^ 1);
  expect(bad, "incorrect data check");
  expect("no gzip at all", "incorrect header check");
}

}  // namespace
}  // namespace spillway::data::idx_test
