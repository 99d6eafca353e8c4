// Tests IDX and CIFAR files that are cut at every byte or have one bit flipped: each gives images or an Error.
#include "data/images/open_images.h"
#include "tests/data/images/support_images.h"

namespace spillway::data::hostile_images_test {
namespace {

using test::put;

// Returns whether opening the file is refused. If the file opens, its first and last image must be readable.
bool refused(const std::string& path) {
  try {
    const auto source = std::move(open_images({path}, Split::training).front());
    std::vector<u8> pixels(static_cast<size_t>(source->format().shape_CHW.elems()));
    for (const i64 image : {i64{0}, source->images() - 1}) {
      const i32 label = source->read(image, pixels);
      EXPECT_TRUE(label >= 0 && label < source->format().classes);
    }
    return false;
  } catch (const Error& e) {
    EXPECT_TRUE(e.code() == ErrorCode::data || e.code() == ErrorCode::usage) << e.what();
    return true;
  }
}

struct HostileImages : testing::Test {
  const test::TemporaryFolder at;
  // Tries a file cut at every `step` bytes, and with each bit of its first `bytes` bytes flipped.
  void try_all(const std::string& name, const std::string& whole, size_t bytes, size_t step) const {
    const auto with = [&](const std::string& contents) { return refused(put(at / name, contents).string()); };
    EXPECT_FALSE(with(whole)) << name;
    for (size_t n = 0; n < whole.size(); n += step) EXPECT_TRUE(with(whole.substr(0, n))) << name << " cut at " << n;
    size_t count = 0;
    for (size_t bit = 0; bit < 8 * bytes; ++bit) {
      std::string bad = whole;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      count += with(bad);
    }
    EXPECT_GT(count, 0u) << name;
  }
};

TEST_F(HostileImages, IdxIsReadOrRefused) {
  put(at / "x-labels-idx1-ubyte", idx_labels(3));
  try_all("x-images-idx3-ubyte", idx_images(3, 5, 4), 20, 1);
  put(at / "y-images-idx3-ubyte", idx_images(3, 5, 4));
  put(at / "y-labels-idx1-ubyte", idx_labels(3));
  const std::string labels = idx_labels(3);
  for (size_t bit = 0; bit < 8 * labels.size(); ++bit) {
    std::string bad = labels;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    put(at / "y-labels-idx1-ubyte", bad);
    EXPECT_EQ(refused((at / "y-images-idx3-ubyte").string()), bit < 64) << "bit " << bit << " of the header, or of a class";
  }
}

TEST_F(HostileImages, PackedIdxIsReadOrRefused) {
  put(at / "x-labels-idx1-ubyte", idx_labels(3));
  const std::string packed = gzipped(idx_images(3, 5, 4));
  try_all("x-images-idx3-ubyte.gz", packed, packed.size(), 1);
}

TEST_F(HostileImages, CifarIsReadOrRefused) {
  const std::string record = '\3' + std::string(3072, 'p');
  try_all("some.bin", record + record, 1, 97);
}

}  // namespace
}  // namespace spillway::data::hostile_images_test
