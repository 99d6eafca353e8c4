// Tests CIFAR's binary files: what is read, what is refused, and how a loader shards the images between ranks.
#include "data/images/open_images.h"

#include "data/loader/loader.h"
#include "tests/data/support_files.h"

namespace spillway::data::cifar_test {
namespace {

using test::error_of;
using test::put;
using test::TemporaryFolder;

constexpr size_t kPixels = 3072;

// Returns a file whose images are numbered from `first`. Image i has class i % 10, and its pixel p is i + p.
std::string records(int first, int count) {
  std::string bytes;
  for (int i = first; i < first + count; ++i) {
    bytes += static_cast<char>(i % 10);
    for (size_t p = 0; p < kPixels; ++p) bytes += static_cast<char>(static_cast<size_t>(i) + p);
  }
  return bytes;
}

struct Cifar10Test : testing::Test {
  const TemporaryFolder at;
  std::string folder() const { return at.path().string(); }
  std::string refused(ErrorCode code, const std::string& path, Split split = Split::training) const {
    return error_of(code, [&] { open_images({path}, split); });
  }
};

TEST_F(Cifar10Test, AFolderIsOneSourceOfItsFilesInOrder) {
  put(at / "data_batch_2.bin", records(70, 7));
  put(at / "data_batch_1.bin", records(0, 70));
  put(at / "test_batch.bin", records(200, 3));
  put(at / "batches.meta.txt", "airplane\n");
  const auto training = open_images({folder()}, Split::training), held_out = open_images({folder()}, Split::held_out);
  ASSERT_EQ(training.size(), 1u);
  EXPECT_EQ(training[0]->images(), 77);
  EXPECT_EQ(held_out[0]->images(), 3);
  EXPECT_EQ(training[0]->format(), (ImageFormat{{3, 32, 32}, 10, {}})) << "one name is no list of ten";
  std::vector<u8> pixels(kPixels);
  for (const i64 image : {0, 1, 69, 70, 76}) {
    EXPECT_EQ(training[0]->read(image, pixels), image % 10);
    EXPECT_EQ(pixels[0], image);
    EXPECT_EQ(pixels[1000], static_cast<u8>(image + 1000));
  }
  EXPECT_EQ(held_out[0]->read(2, pixels), 2);
  EXPECT_EQ(open_images({(at / "data_batch_2.bin").string()}, Split::held_out)[0]->images(), 7);
}

// Returns a CIFAR-100 file. Image i has coarse class 7, fine class i, and its pixel p is i + p.
std::string fine_records(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>(7);
    bytes += static_cast<char>(i);
    for (size_t p = 0; p < kPixels; ++p) bytes += static_cast<char>(static_cast<size_t>(i) + p);
  }
  return bytes;
}

TEST_F(Cifar10Test, OfCifar100TheFineClassCounts) {
  put(at / "train.bin", fine_records(100));
  put(at / "test.bin", fine_records(5));
  std::string names;
  for (int k = 0; k < 100; ++k) names += "fine " + std::to_string(k) + "\r\n";
  put(at / "fine_label_names.txt", names);
  const auto training = open_images({folder()}, Split::training), held_out = open_images({folder()}, Split::held_out);
  EXPECT_EQ(training[0]->images(), 100);
  EXPECT_EQ(held_out[0]->images(), 5);
  EXPECT_EQ(training[0]->format().classes, 100);
  EXPECT_EQ(training[0]->format().class_names[99], "fine 99");
  std::vector<u8> pixels(kPixels);
  EXPECT_EQ(training[0]->read(99, pixels), 99);
  EXPECT_EQ(pixels[10], 109);
  const TemporaryFolder elsewhere;
  EXPECT_EQ(open_images({put(elsewhere / "some.bin", fine_records(3)).string()}, Split::training)[0]->format().classes, 100)
      << "by its size";
  EXPECT_NE(refused(ErrorCode::data, put(elsewhere / "train.bin", records(0, 2)).string()).find("CIFAR-100 records of 3074 bytes"),
            std::string::npos);
  std::string bad = fine_records(70);
  bad[66 * (kPixels + 2) + 1] = 100;
  EXPECT_NE(refused(ErrorCode::data, put(elsewhere / "train.bin", bad).string()).find("got 100 for image 66 (byte 202885)"),
            std::string::npos);
}

TEST_F(Cifar10Test, WhatGoesWithWhat) {
  const TemporaryFolder other;
  const std::string ten = put(at / "a.bin", records(0, 3)).string(), hundred = put(other / "train.bin", fine_records(2)).string();
  EXPECT_NE(error_of(ErrorCode::data,
                     [&] {
                       open_images({ten, hundred}, Split::training);
                     })
                .find("[3, 32, 32] in 10 classes, as those of"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorCode::data,
                     [&] {
                       open_images({hundred}, Split::held_out, {.format = ImageFormat{{3, 32, 32}, 10, {}}});
                     })
                .find("as the model reads, got shape [3, 32, 32] in 100 classes"),
            std::string::npos);
  EXPECT_EQ(open_images({ten}, Split::held_out, {.format = ImageFormat{{3, 32, 32}, 100, {}}}).size(), 1u);
}

TEST_F(Cifar10Test, WhatIsNoSuchDataIsRefusedWithFilePlaceAndCure) {
  EXPECT_NE(refused(ErrorCode::data, folder() + "/none").find("is not there"), std::string::npos);
  EXPECT_NE(refused(ErrorCode::usage, folder()).find("expected CIFAR-10's or CIFAR-100's binary version"), std::string::npos);
  put(at / "data_batch_1", "python");
  EXPECT_NE(refused(ErrorCode::usage, folder()).find("Python version"), std::string::npos);
  put(at / "data_batch_1.bin", records(0, 2));
  EXPECT_NE(refused(ErrorCode::usage, folder(), Split::held_out).find("test_batch.bin"), std::string::npos);
  const auto file = [&](const std::string& bytes) { return put(at / "x.bin", bytes).string(); };
  EXPECT_NE(refused(ErrorCode::data, file(records(0, 3).substr(1))).find("got 9218 bytes, which is 2 records"), std::string::npos);
  EXPECT_NE(refused(ErrorCode::data, file("")).find("got 0 bytes"), std::string::npos);
  std::string bad = records(0, 70);
  bad[66 * (kPixels + 1)] = 10;
  EXPECT_NE(refused(ErrorCode::data, file(bad)).find("got 10 for image 66 (byte 202818)"), std::string::npos);
  EXPECT_NE(refused(ErrorCode::usage, put(at / "cifar-10-binary.tar.gz", "x").string()).find("unpack it first"), std::string::npos);
  EXPECT_NE(refused(ErrorCode::usage, put(at / "text.txt", "x").string()).find("a folder of images"), std::string::npos);
}

TEST_F(Cifar10Test, ALoaderDealsImagesOutAsItDoesWindows) {
  put(at / "data_batch_1.bin", records(0, 20));
  const auto sources = open_images({folder()}, Split::training);
  const Loader loader(images_of(sources, DType::f32),
                      {.micro_batch_size = 4, .micro_batches = 2, .shuffled = false, .validation_fraction = 0.3});
  EXPECT_EQ(loader.windows(), 14);
  EXPECT_EQ(loader.validation_windows(), 6);
  const StepBatch step = loader.step(8);  // loads images 8 to 13, the last of the epoch
  EXPECT_EQ(step.counted_targets, 6);
  std::vector<i32> classes;
  for (const MicroBatch& m : step.micro_batches) {
    EXPECT_EQ(m.images_NCHW.shape(), (Shape{4, 3, 32, 32}));
    EXPECT_FALSE(m.tokens_BT.defined());
    for (const i32 c : m.targets_BT.span<i32>()) classes.push_back(c);
  }
  EXPECT_EQ(classes, (std::vector<i32>{8, 9, 0, 1, 2, 3, kIgnoredTarget, kIgnoredTarget}));
  const std::span<const float> pixels = step.micro_batches[0].images_NCHW.span<float>();
  EXPECT_EQ(pixels[kPixels + 5], (14 / 255.0f - 0.5f) / 0.5f) << "of image 9, pixel 5";
  EXPECT_EQ(pixels[246], (254 / 255.0f - 0.5f) / 0.5f) << "of image 8";
  const MicroBatch last = loader.validation(1);
  EXPECT_EQ(last.counted_targets, 2);
  const auto targets = last.targets_BT.span<i32>();
  EXPECT_EQ(std::vector<i32>(targets.begin(), targets.end()), (std::vector<i32>{8, 9, kIgnoredTarget, kIgnoredTarget}));
  const Loader rounded(images_of(sources, DType::bf16), {.micro_batch_size = 1, .shuffled = false});
  EXPECT_EQ(rounded.step(0).micro_batches[0].images_NCHW.span<BFloat16>()[1].bits, narrow<BFloat16>((1 / 255.0f - 0.5f) / 0.5f).bits);
}

}  // namespace
}  // namespace spillway::data::cifar_test
