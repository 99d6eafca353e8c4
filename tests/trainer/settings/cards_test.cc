// Tests the table of GPUs: each row is plausible beside its neighbours, and names are found as users write them.
#include "trainer/settings/cards.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "tests/trainer/support_trainer.h"

namespace spillway::trainer::cards_test {
namespace {

const Card& card(const char* name, std::optional<i64> memory_bytes = {}) {
  const Card* const found = find_card(name, memory_bytes, "--cluster");
  if (!found) throw std::runtime_error(name);
  return *found;
}

// A figure with sparsity in the place of a dense one, or a rate of both ways together, would break one of these relations.
TEST(Cards, RowsArePlausible) {
  EXPECT_GE(all_cards().size(), 12u);
  std::set<std::pair<std::string_view, double>> seen;
  for (const Card& c : all_cards()) {
    EXPECT_TRUE(seen.emplace(c.name, c.memory_gib).second) << c.name;
    EXPECT_FALSE(c.source.empty()) << c.name;
    if (c.bf16 > 0) {
      EXPECT_EQ(c.bf16, c.fp16) << c.name << ": tensor cores multiply both at one rate";
      EXPECT_NEAR(c.tf32 / c.bf16, 0.5, 0.015) << c.name << ": tf32 has twice the bytes of bf16";
      EXPECT_GE(c.tf32, c.fp32) << c.name;
    } else {
      EXPECT_TRUE(c.tf32 == 0 && c.fp16 > 4 * c.fp32) << c.name << ": tensor cores of fp16 only";
    }
    EXPECT_TRUE(c.pcie >= 3 && c.pcie <= 5 && c.lanes == 16) << c.name;
    EXPECT_EQ(c.nvlink_gb_per_s > 0, c.nvlink_gpus > 1) << c.name;
    EXPECT_LE(1e9 * c.nvlink_gb_per_s, 1e9 * c.memory_gb_per_s / 3) << c.name;
    // All these GPUs read memory at 13 to 60 GB/s for each GiB that they have.
    EXPECT_TRUE(c.memory_gb_per_s / c.memory_gib > 12 && c.memory_gb_per_s / c.memory_gib < 80) << c.name;
  }
}

TEST(Cards, ThePageHasEachRow) {
  std::ifstream file(std::string(SPILLWAY_SOURCE_DIR) + "/docs/clusters.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const auto shown = [](double peak) { return peak == 0 ? "-" : fmt::format("{}", peak); };
  for (const Card& c : all_cards()) {
    const std::string row = fmt::format("| {} | {} | {} / {} / {} / {} | {} | {}.0 x{} | {} | {} |", c.name, c.memory_gib, shown(c.bf16),
                                        shown(c.fp16), shown(c.tf32), shown(c.fp32), c.memory_gb_per_s, c.pcie, c.lanes,
                                        c.nvlink_gpus ? fmt::format("{} ({} GPUs)", c.nvlink_gb_per_s, c.nvlink_gpus) : "-", c.source);
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
}

TEST(Cards, AreFoundAsUsersWriteThem) {
  for (const char* name : {"RTX4090", "rtx 4090", "NVIDIA GeForce RTX 4090", "4090", "RTX-4090"}) EXPECT_EQ(card(name).name, "RTX4090");
  for (const char* name : {"A6000", "RTX A6000"}) EXPECT_EQ(card(name).name, "A6000");
  for (const char* name : {"H100", "h100-sxm5", "NVIDIA H100 SXM"}) EXPECT_EQ(card(name).name, "H100");
  EXPECT_EQ(card("RTX PRO 6000 Blackwell").name, "RTX-PRO-6000");
  EXPECT_EQ(card("Tesla T4").name, "T4");
  EXPECT_EQ(find_card("H10", {}, "--cluster"), nullptr);
}

TEST(Cards, MemoryChoosesAmongCardsOfOneName) {
  EXPECT_EQ(card("A100", 40 * kGiB).memory_gb_per_s, 1555);
  EXPECT_EQ(card("A100", 80'000'000'000).memory_gb_per_s, 2039);
  const std::string message = message_of([] { find_card("A100", {}, "--cluster"); });
  EXPECT_EQ(message, "[--cluster] expected the memory of the A100, which is made with different sizes: A100-40GiB or A100-80GiB");
}

TEST(Cards, ATypeWithoutTensorCoresRunsAsFp32Does) {
  EXPECT_EQ(card("V100", 16 * kGiB).flops(DType::bf16, false), 15.7e12);
  EXPECT_EQ(card("V100", 16 * kGiB).flops(DType::f16, false), 125e12);
  EXPECT_EQ(card("H100").flops(DType::f32, false), 67e12);
  EXPECT_EQ(card("H100").flops(DType::f32, true), 494e12);
}

TEST(Cards, TheNearestNameIsNamedAndAllAreListed) {
  EXPECT_TRUE(other_cards("H10").starts_with(": did you mean H100? The table has RTX3060, ")) << other_cards("H10");
  EXPECT_TRUE(other_cards("RTX 4900").starts_with(": did you mean RTX4090?"));
  EXPECT_TRUE(other_cards("MI300X").starts_with(". The table has ")) << other_cards("MI300X");
}

}  // namespace
}  // namespace spillway::trainer::cards_test
