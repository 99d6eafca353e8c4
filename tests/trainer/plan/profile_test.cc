// Tests the sums that train --profile makes of a list of instructions, against sums worked out by hand, and the wear of drives.
#include "trainer/plan/profile.h"

#include <gtest/gtest.h>

#include "trainer/record/wear.h"

namespace spillway::trainer::profile_test {
namespace {

using parallel::Instruction;
using parallel::Lane;
using parallel::Op;
using parallel::What;

constexpr size_t kHost = 1, kNvme = 2;

Instruction instruction(Op op, Lane lane, What what = What::none) {
  Instruction i;
  i.op = op;
  i.lane = lane;
  i.what = what;
  i.bucket = 0;
  return i;
}

// Returns a plan in f32, where an optimizer update moves 28 bytes per parameter.
parallel::Plan plan() {
  parallel::Plan p;
  p.scheduling.format = optim::plain_format(DType::f32);
  return p;
}

const ProfileRow& row(const std::vector<ProfileRow>& rows, const std::string& kind) {
  for (const ProfileRow& one : rows) {
    if (one.kind == kind) return one;
  }
  throw std::runtime_error("no row " + kind);
}

TEST(Profile, SumsByKindAndLane) {
  parallel::List list = {instruction(Op::Forward, Lane::compute), instruction(Op::Forward, Lane::compute),
                         instruction(Op::Fetch, Lane::load, What::weights), instruction(Op::Fetch, Lane::load, What::activations)};
  Profile profile;
  profile.add(list, {{0, 1000}, {1000, 4000}, {0, 500}, {500, 2500}}, plan());
  const auto rows = profile.rows({}, {}, {});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].kind, "Forward");  // rows are sorted by time, the longest first
  EXPECT_EQ(rows[0].lane, "compute");
  EXPECT_DOUBLE_EQ(rows[0].ms, 4);
  EXPECT_FALSE(rows[0].bytes_per_s);
  EXPECT_DOUBLE_EQ(row(rows, "Fetch weights").ms, 0.5);
  EXPECT_DOUBLE_EQ(row(rows, "Fetch activations").ms, 2);
}

TEST(Profile, RatesBesideTheCeilingOfWhatTheyUse) {
  parallel::List list = {instruction(Op::Fetch, Lane::load, What::weights), instruction(Op::Evict, Lane::store, What::gradient),
                         instruction(Op::Fetch, Lane::load, What::gradient)};
  list[0].read_bytes[kNvme] = 2'000'000;
  list[1].written_bytes[kNvme] = 3'000'000;
  list[2].read_bytes[kHost] = 1'000'000;
  Profile profile;
  profile.add(list, {{0, 1000}, {0, 2000}, {0, 1000}}, plan());
  Calibration calibration;
  calibration.copy_bytes_per_s = 8e9;
  const DiskRates fast{.path = "/a", .read_bytes_per_s = 4e9, .write_bytes_per_s = 3e9},
      slow{.path = "/b", .read_bytes_per_s = 2e9, .write_bytes_per_s = 1e9};
  const auto rows = profile.rows(calibration, {fast, slow}, {1, 1});
  EXPECT_DOUBLE_EQ(*row(rows, "Fetch weights").bytes_per_s, 2e9);
  EXPECT_DOUBLE_EQ(*row(rows, "Fetch weights").ceiling, 4e9);  // both stripes run at the speed of the slower drive
  EXPECT_EQ(row(rows, "Fetch weights").ceiling_name, "disk read");
  EXPECT_DOUBLE_EQ(*row(rows, "Evict gradient").bytes_per_s, 1.5e9);
  EXPECT_DOUBLE_EQ(*row(rows, "Evict gradient").ceiling, 2e9);
  EXPECT_DOUBLE_EQ(*row(rows, "Fetch gradient").bytes_per_s, 2e9);  // the rate counts bytes read plus bytes written
  EXPECT_DOUBLE_EQ(*row(rows, "Fetch gradient").ceiling, 8e9);
  const auto dealt = profile.rows(calibration, {fast, slow}, {2, 1});
  EXPECT_DOUBLE_EQ(*row(dealt, "Fetch weights").ceiling, 6e9);  // shares of 2:1 let both drives run at full speed
  EXPECT_DOUBLE_EQ(*row(dealt, "Evict gradient").ceiling, 3e9);
  const std::string text = to_text(rows, true);
  EXPECT_NE(text.find("50 % of disk read"), std::string::npos) << text;
  EXPECT_NE(to_text(rows, false).find("spillway bench"), std::string::npos);
}

// Counts a block's FLOPs. A backward takes twice the FLOPs of a forward, and three times as many if it recomputes the forward first. A
// separate weight part takes half of a backward's FLOPs.
TEST(Profile, ProductsBesideWhatTheDeviceMultiplies) {
  parallel::List list = {instruction(Op::Forward, Lane::compute), instruction(Op::Backward, Lane::compute),
                         instruction(Op::BackwardWeight, Lane::compute)};
  for (Instruction& i : list) i.block = 3;
  list[1].recompute = true;
  Calibration calibration;
  calibration.matmul_flops_f32 = 4e12, calibration.gpu_matmul_flops_bf16 = 1e15;
  const auto flops = [](u16 block) { return block == 3 ? BlockFlops{1e9, 1e9} : BlockFlops{}; };
  Profile on_cpu;
  on_cpu.add(list, {{0, 1000}, {1000, 3000}, {3000, 4000}}, plan(), flops);
  const auto rows = on_cpu.rows(calibration, {}, {});
  EXPECT_DOUBLE_EQ(*row(rows, "Forward").flops_per_s, 1e12);
  EXPECT_DOUBLE_EQ(*row(rows, "Backward").flops_per_s, 1.5e12);
  EXPECT_DOUBLE_EQ(*row(rows, "BackwardWeight").flops_per_s, 1e12);
  EXPECT_DOUBLE_EQ(*row(rows, "Forward").ceiling, 4e12);
  EXPECT_NE(to_text(rows, true).find("1.50 TF/s  38 % of matmul"), std::string::npos) << to_text(rows, true);
  parallel::Plan gpu = plan();
  gpu.device = Device::Kind::cuda, gpu.scheduling.format.weight = DType::bf16;
  Profile on_gpu;
  on_gpu.add(list, {{0, 1000}, {1000, 3000}, {3000, 4000}}, gpu, flops);
  EXPECT_DOUBLE_EQ(*row(on_gpu.rows(calibration, {}, {}), "Forward").ceiling, 1e15);
}

TEST(Profile, AKindsOpsStandBehindIt) {
  parallel::List list = {instruction(Op::Forward, Lane::compute), instruction(Op::Backward, Lane::compute)};
  Profile profile;
  profile.add(list, {{0, 1000}, {1000, 4000}}, plan());
  profile.op_times()[Op::Backward] = {{"linear", {2e-3, 4e9, 1}}, {"layer_norm", {0.5e-3, 0, 2}}};
  profile.op_times()[Op::Forward] = {{"linear", {1e-3, 2e9, 1}}};
  Calibration calibration;
  calibration.matmul_flops_f32 = 4e12;
  const auto rows = profile.rows(calibration, {}, {});
  std::vector<std::pair<std::string, std::string>> names;
  for (const ProfileRow& one : rows) names.emplace_back(one.kind, one.op);
  EXPECT_EQ(names, (std::vector<std::pair<std::string, std::string>>{
                       {"Backward", ""}, {"Backward", "linear"}, {"Backward", "layer_norm"}, {"Forward", ""}, {"Forward", "linear"}}));
  EXPECT_DOUBLE_EQ(*rows[1].flops_per_s, 2e12);
  EXPECT_DOUBLE_EQ(*rows[1].ceiling, 4e12);
  EXPECT_FALSE(rows[2].flops_per_s);
}

TEST(Profile, AnUpdateTakesItsLandingToo) {
  parallel::List list = {instruction(Op::Step, Lane::optimizer), instruction(Op::Land, Lane::optimizer)};
  list[0].tiles = {0, 10};
  Profile in_memory;
  in_memory.add(list, {{0, 1000}, {1000, 2000}}, plan());
  const double bytes = 28.0 * 10 * optim::kTileElems;
  const auto memory = in_memory.rows({}, {}, {});
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_DOUBLE_EQ(*memory[0].bytes_per_s, bytes / 2e-3);
  EXPECT_EQ(memory[0].ceiling, Calibration().memory_bytes_per_s);
  list[0].read_bytes[kNvme] = list[0].written_bytes[kNvme] = 1'000'000;
  Profile on_disk;
  on_disk.add(list, {{0, 1000}, {1000, 2000}}, plan());
  const auto disk = on_disk.rows({}, {}, {});
  EXPECT_DOUBLE_EQ(*disk[0].bytes_per_s, 1e9);
  EXPECT_EQ(disk[0].ceiling, DiskRates().mixed_bytes_per_s);
}

TEST(Wear, StepsTokensDays) {
  const Wear wear = wear_of(1'000'000, 10, 500, 20, 600'000'000'000'000, 1);
  EXPECT_DOUBLE_EQ(wear.bytes_per_step, 1e5);
  EXPECT_DOUBLE_EQ(wear.bytes_per_token, 2000);
  EXPECT_DOUBLE_EQ(wear.bytes_per_day, 5e4 * 86400);
  EXPECT_DOUBLE_EQ(*wear.days, 6e14 / (5e4 * 86400));
  EXPECT_FALSE(wear_of(0, 10, 500, 20, 600, 1).days);
  EXPECT_FALSE(wear_of(1000, 10, 500, 20, {}, 1).days);
  EXPECT_EQ(wear_of(1000, 0, 0, 0, 600, 1).bytes_per_day, 0);
  EXPECT_NE(to_text(wear, 600'000'000'000'000).find("rated writes (600TBW a drive) in 138889 days"), std::string::npos)
      << to_text(wear, 600'000'000'000'000);
  EXPECT_EQ(to_text(wear, {}).find("rated"), std::string::npos);
}

}  // namespace
}  // namespace spillway::trainer::profile_test
