// Tests a network with batch norm whose weights, running statistics and state are all on nvme: after a kill it continues with bitwise the
// results of a run that never stopped.
#include <gtest/gtest.h>
#include <signal.h>

#include "base/random.h"
#include "tests/e2e/support_program.h"

namespace spillway::test::images_test {
namespace {

constexpr int kSteps = 12, kImages = 60;

// Returns CIFAR-10 records: one byte for the class, then 3 x 32 x 32 bytes.
std::string images() {
  std::string bytes;
  for (u64 i = 0; i < kImages; ++i) {
    bytes += static_cast<char>(i % 10);
    for (u64 p = 0; p < 3072; ++p) bytes += static_cast<char>(RandomKey{i % 10}.derive("pixel", p / (1 + i % 7)).value % 256);
  }
  return bytes;
}

TEST(KilledImagesRelease, GoOnWithTheBitsOfARunThatNeverStopped) {
  Workplace at;
  std::filesystem::create_directory(at / "cifar");
  at.write("cifar/data_batch_1.bin", images());
  const auto run = [](const std::string& out, Args more) {
    Args args{"train",
              "--model",
              "resnet20",
              "--data",
              "cifar",
              "--steps",
              std::to_string(kSteps),
              "--threads",
              "1",
              "--device",
              "cpu",

              "--micro-batch-size",
              "4",
              "--out",
              out,
              "--gradient-accumulation-steps",
              "2",
              "--host-memory",
              "64MiB",
              "--checkpoint-every",
              "100000"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  const auto final_file = [&](const std::string& out, const std::string& file) {
    return at.read(out + "/checkpoints/step-000000" + std::to_string(kSteps) + "/" + file);
  };
  const Finished straight = at.spillway(run("straight", {}));
  ASSERT_EQ(straight.status, 0) << straight.err;
  const Args on_nvme =
      run("nvme", {"--nvme", "scratch", "--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme"});
  const Finished killed = at.spillway_until(
      on_nvme, [&] { return at.metrics("nvme").size() >= 4; }, SIGKILL);
  ASSERT_EQ(killed.status, 128 + SIGKILL) << killed.err;
  const Finished f = at.spillway(on_nvme);
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.err, "from the state on nvme")) << f.err;
  EXPECT_EQ(numbers_of(at.metrics("nvme")), numbers_of(at.metrics("straight")));
  EXPECT_TRUE(mentions(final_file("straight", "model.safetensors"), "bn1.running_var"));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(final_file("nvme", file) == final_file("straight", file)) << file;
}

// Trains a ResNet-18 on small images. In its last layers one element per channel is left of an image, so the blocks must not be timed with
// a single image.
TEST(SmallImagesRelease, TrainResNet18) {
  Workplace at;
  std::filesystem::create_directory(at / "cifar");
  at.write("cifar/data_batch_1.bin", images());
  const Args args{"train",
                  "--model",
                  "resnet18",
                  "--data",
                  "cifar",
                  "--steps",
                  "2",
                  "--threads",
                  "1",
                  "--device",
                  "cpu",
                  "--out",
                  "run",
                  "--no-final-checkpoint",
                  "--micro-batch-size"};
  const auto with_images = [&](const char* number) {
    Args all = args;
    all.push_back(number);
    return at.spillway(all);
  };
  const Finished one = with_images("1");
  EXPECT_EQ(one.status, 2) << one.err;
  EXPECT_TRUE(mentions(one.err, "expected more than one element for each channel")) << one.err;
  EXPECT_EQ(with_images("3").status, 0);
  EXPECT_EQ(at.metrics("run").size(), 2u);
}

}  // namespace
}  // namespace spillway::test::images_test
