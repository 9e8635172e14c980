// program WHAT: uses a part of planq.hpp and prints what came of it; test_cpp.py knows what should.
#include <planq.hpp>

#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

#include "other.h"

// A type of the program's own.
struct Half {
  std::uint16_t bits;
};
template <>
struct planq::DTypeOf<Half> {
  static constexpr DType value = dtypes::float16;
};

namespace {

using planq::Dim;
using planq::Plan;
using planq::Stream;

const Stream kHost = Stream::host();

// Two rows of six, of which the first four elements are meant.
struct Rows {
  float x[2][6] = {{0.5f, -1, 127, 3, 99, 99}, {1, 2, -4, 0.25f, 99, 99}};
  std::int8_t q[2][4] = {};
  float s[2] = {};

  planq::Tensor input() const { return planq::Tensor(x[0], {2, 4}).with_strides({6, 1}); }
  std::vector<planq::Operand> operands() {
    return {{"input", input()}, {"output", {q, {2, 4}}}, {"scale", {s, {2}}}};
  }
  void print() const {
    for (int row = 0; row < 2; ++row)
      std::printf("%d %d %d %d %a\n", q[row][0], q[row][1], q[row][2], q[row][3],
                  static_cast<double>(s[row]));
  }
};

// --- Runs ----------------------------------------------------------------------------------------

void rows() {
  const Plan plan = select_elsewhere(kHost);
  Rows made;
  plan.run(kHost, {},
           {{"scale", {made.s, {2}}}, {"input", made.input()}, {"output", {made.q, {2, 4}}}});
  made.print();
  Rows again;
  plan.run(Stream::host(2), {}, again.operands());
  again.print();
}

// A launch lives longer than the plan, the vector and the tensors that it was made of.
void bound() {
  Rows made;
  auto plan = std::make_unique<Plan>(select_elsewhere(kHost));
  planq::Launch launch = plan->bind({}, made.operands());
  const planq::Launch copy = launch;
  plan.reset();
  launch = planq::Launch(0);
  copy.run(kHost);
  made.print();
  std::printf("%s\n", copy.body().c_str());
  std::printf("%s\n", launch.try_run(kHost).message().c_str());
}

// parameter -= rate * gradient, for tensors of 3 elements, and the sums of what they were.
void lists() {
  const Plan plan = Plan::select(
      kHost, planq::Descriptor("list300").set("shapes", std::vector<std::vector<int>>{{3}, {3}}));
  float parameter[2][3] = {{1, 2, 3}, {4, 5, 6}}, gradient[2][3] = {{2, 2, 2}, {4, 4, 4}};
  double sums[2] = {};
  const auto listed = [](float (&of)[2][3]) {
    return planq::TensorList({{of[0], {3}}, {of[1], {3}}});
  };
  const planq::TensorList parameters = listed(parameter), gradients = listed(gradient);
  const auto run = [&](const planq::Operand& rate) {
    plan.run(kHost, {},
             {{"parameter", parameters}, {"gradient", gradients}, rate, {"sums", {sums, {2}}}});
    for (const auto& each : parameter) std::printf("%g %g %g, ", each[0], each[1], each[2]);
    std::printf("%g %g\n", sums[0], sums[1]);
  };
  run({"rate", 0.25});
  run({"rate", 1});
  run({"rate", 0.5f});
  const double rate = 0.5;
  run({"rate", {&rate, {}}});
  const auto told = [&](const planq::Operand& gradient_given) {
    const planq::Status status = plan.can_implement(
        {{"parameter", parameters}, gradient_given, {"rate", true}, {"sums", {sums, {2}}}});
    std::printf("%s\n", status.message().c_str());
  };
  told({"gradient", gradients});
  told({"gradient", nullptr});
  const planq::TensorList none({});
  told({"gradient", none});
  told({"gradient", {gradient[0], {3}}});
}

// Whether a call of the program's took memory from the heap.
void allocations() {
  const Plan plan = select_elsewhere(kHost);
  Rows made;
  const auto given = made.operands();
  const planq::Launch launch = plan.bind({}, given);
  const auto count = [](const auto& call) {
    const std::size_t before = allocations_so_far();
    call();
    std::printf("%d", allocations_so_far() > before);
  };
  count([&] { plan.run(kHost, {}, given); });
  count([&] {
    plan.run(kHost, {},
             {{"input", made.input()}, {"output", {made.q, {2, 4}}}, {"scale", {made.s, {2}}}});
  });
  count([&] { (void)plan.try_run(kHost, {}, given); });
  count([&] { (void)plan.can_implement(given); });
  count([&] { launch.run(kHost); });
  count([&] { (void)plan.sku(); });
  std::printf("\n");
}

// An operator with operands that may be left out, and with every type of number.
void numbers() {
  const Plan plan =
      Plan::select(kHost, planq::Descriptor("step14").set("shape", {4, 4}).set("amsgrad", true));
  for (const planq::OperandInfo& info : plan.operands())
    std::printf("%s %d %d %d %s\n", info.name, static_cast<int>(info.role),
                static_cast<int>(info.kind), info.optional, info.dtype);
}

// --- What plans say ------------------------------------------------------------------------------

void print(const planq::OperandInfo& info) {
  std::printf("%s %d %d %d %s %s", info.name, static_cast<int>(info.role),
              static_cast<int>(info.kind), info.optional, info.dtype, info.storage.name);
  for (const auto& room : info.rooms) {
    std::printf(" (");
    for (const std::int64_t extent : room.shape)
      std::printf("%lld,", static_cast<long long>(extent));
    std::printf(") %zu", room.bytes);
  }
  std::printf("\n");
}

void operands() {
  const Plan plan = select_elsewhere(kHost);
  for (const planq::OperandInfo& info : plan.operands()) print(info);
  for (const planq::OperandInfo& info : plan.operands({{"m", 7}})) print(info);
  const auto desc = planq::Descriptor("list300").set("shapes", {{2, 3}, {5}});
  for (const planq::OperandInfo& info : Plan::select(kHost, desc).operands()) print(info);
}

void texts() {
  const Plan plan = select_elsewhere(kHost);
  std::printf("%s\n%s\n%s\n%s\n%s\n%s\n", plan.sku().c_str(), plan.to_json().c_str(),
              plan.guarantee().c_str(), plan.explain().c_str(), plan.bodies().c_str(),
              plan.bodies({{"m", 1}}).c_str());
  std::printf("%zu %zu\n", plan.workspace_size(), plan.workspace_size({{"m", 3}}));
  std::printf("%s %s %s\n", planq::version().c_str(), planq::build_id().c_str(),
              planq::source_id().c_str());
  std::printf("%s\n", planq::operators().c_str());
  std::printf("%s\n", Plan::from_json(kHost, plan.to_json()).to_json().c_str());
}

void dtypes() {
  for (const planq::DType& each : planq::dtypes::all)
    std::printf("%s %d %d\n", each.name, each.code, each.bits);
  const auto name = [](planq::DType dtype) { std::printf("%s ", dtype.name); };
  int value = 0;
  const double real[2][3] = {};
  name(planq::Tensor(&value, {}).dtype());
  name(planq::Tensor(real, {2, 3}).dtype());
  name(planq::Tensor(static_cast<bool*>(nullptr), {0}).dtype());
  name(planq::Tensor(static_cast<std::int64_t*>(nullptr), {0}).dtype());
  name(planq::Tensor(static_cast<const std::uint8_t*>(nullptr), {0}).dtype());
  name(planq::Tensor(static_cast<const Half*>(nullptr), {0}).dtype());
  name(planq::Tensor(nullptr, planq::dtypes::bfloat16, {0}).dtype());
  std::printf("\n");
}

void json() {
  const char* const odd = "a \"b\" \\ \n\x01 \xc3\xa9";
  planq::Descriptor desc("every");
  desc.set("text", odd).set(odd, std::string("text")).set("flag", true).set("none", nullptr);
  desc.set("integer", -3).set("large", UINT64_MAX).set("least", INT64_MIN);
  desc.set("tenth", 0.1).set("single", 0.1f).set("small", 5e-324).set("whole", 1e22);
  desc.set("shapes", {{3, 4}, {5}}).set("single_list", {7}).set("empty", std::vector<int>{});
  desc.set("dim", {Dim("m", 16), 4}).set("dtype", planq::dtypes::float8_e4m3fn);
  desc.set("scopes",
           {planq::Scope::tensor(), planq::Scope::channel(1), planq::Scope::token(),
            planq::Scope::group(128), planq::Scope::group(8, 0), planq::Scope::block(2, 3)});
  std::printf("%s\n", desc.json().c_str());
  planq::Preference pref;
  std::printf("%s\n", pref.json().c_str());
  pref.determinism("gpu_to_gpu")
      .batch_invariant()
      .max_ulp(0)
      .max_workspace_bytes(1)
      .backend("host");
  std::printf("%s\n", pref.sku("a").body("b").json().c_str());
  for (const char* text : {"{}", " { } ", "{\"op\": {}}", "{\"op\": 1 }\n"})
    std::printf("%s\n", planq::Descriptor::from_json(text).set("more", 1).json().c_str());
  std::printf("%s\n", planq::Preference::from_json("{\"max_ulp\": 3}").body("b").json().c_str());
}

// --- Errors --------------------------------------------------------------------------------------

// The classes that catch what is thrown, the most special first.
template <class Call>
void caught(const Call& call) {
  try {
    call();
    std::printf("nothing\n");
  } catch (const planq::Error& error) {
    const std::map<planq_code, bool> is = {
        {1, dynamic_cast<const planq::DescriptorError*>(&error) != nullptr},
        {2, dynamic_cast<const planq::NoKernelError*>(&error) != nullptr},
        {3, dynamic_cast<const planq::ArgumentError*>(&error) != nullptr},
        {4, dynamic_cast<const planq::WorkspaceError*>(&error) != nullptr},
        {5, dynamic_cast<const planq::StreamError*>(&error) != nullptr},
        {6, dynamic_cast<const planq::PlanMismatchError*>(&error) != nullptr},
        {7, dynamic_cast<const planq::CudaError*>(&error) != nullptr},
        {8, dynamic_cast<const planq::HandleError*>(&error) != nullptr},
        {9, dynamic_cast<const planq::BufferError*>(&error) != nullptr},
        {10, dynamic_cast<const planq::MemoryError*>(&error) != nullptr},
        {11, dynamic_cast<const planq::InternalError*>(&error) != nullptr}};
    for (const auto& [code, matches] : is)
      if (matches) std::printf("%d ", code);
    const std::string sentence = error.what();
    std::printf("%s: %s\n", error.name(), sentence.substr(0, sentence.find('\n')).c_str());
  }
}

void refused() {
  const auto select = [](const planq::Descriptor& desc, const planq::Preference& pref = {},
                         const Stream& stream = kHost) { return Plan::select(stream, desc, pref); };
  const Plan plan = select_elsewhere(kHost);
  Rows made;
  auto given = made.operands();
  caught([&] { select(rows_descriptor().set("colour", 3)); });
  caught([&] { rows_descriptor().set("q_min", std::numeric_limits<double>::quiet_NaN()); });
  caught([&] { rows_descriptor().set("q_max", -std::numeric_limits<float>::infinity()); });
  caught([&] { select(rows_descriptor().set("op", "twice")); });
  caught([&] { select(planq::Descriptor::from_json("?")); });
  caught([&] { select(rows_descriptor(), planq::Preference().max_ulp(-1)); });
  caught([&] { select(rows_descriptor(), planq::Preference().sku("nothing")); });
  caught([&] { plan.run(kHost, {}, {given[0], given[1]}); });
  caught([&] { plan.run(kHost, {}, {{"input", {made.x[0], {2, 5}}}, given[1], given[2]}); });
  caught([&] { plan.run(kHost, {}, {{"input", {made.x[0], {1, 1, 1, 1, 1, 1, 1, 1, 1}}}}); });
  caught([&] { plan.run(kHost, {}, {{"input", {reinterpret_cast<char16_t*>(made.x), {2, 4}}}}); });
  caught([&] { plan.run(kHost, {}, std::vector<planq::Operand>(49, given[0])); });
  caught([&] { plan.run(kHost, {}, std::vector<planq::Operand>()); });
  caught([&] {
    plan.run(kHost, {}, {given[0], given[1], {"scale", {made.s, {2}, planq::Memory::cuda(1)}}});
  });
  caught([&] { (void)made.input().with_strides({1}); });
  caught([&] { plan.workspace_size({{"m", 17}}); });
  caught([&] { plan.workspace_size({{"k", 1}}); });
  caught([&] { plan.operands({{"m", 17}}); });
  caught([&] { plan.bodies({{"m", 1}, {"m", 1}}); });
  caught([&] { plan.run(Stream::cuda(nullptr, 3), {}, given); });
  caught([&] { plan.run(Stream::host(0), {}, given); });
  caught([&] { plan.bind({}, given).run(Stream::cuda(nullptr, 3)); });
  caught([&] { Plan::from_json(kHost, "{}"); });
  caught([&] { Plan::from_json(kHost, plan.to_json().substr(1)); });
  caught([&] { Plan(7).sku(); });
  caught([&] { planq::Launch(7).run(kHost); });
  for (const planq_code code : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, -1})
    caught([&] { planq::Status(code).check(); });
}

// A workspace that is missing, too small, or right.
void workspaces() {
  const auto desc = planq::Descriptor("noop")
                        .set("shape", {8})
                        .set("input_dtype", "float32")
                        .set("output_dtype", "int8");
  const Plan plan =
      Plan::select(kHost, desc, planq::Preference().sku("noop/host/exact").body("staged"));
  float x[8] = {}, s[1];
  std::int8_t q[8];
  std::int32_t zero[1];
  const std::vector<planq::Operand> given = {
      {"input", {x, {8}}}, {"output", {q, {8}}}, {"scale", {s, {1}}}, {"zero_point", {zero, {1}}}};
  alignas(PLANQ_WORKSPACE_ALIGNMENT) static std::byte memory[1 << 16];
  const std::size_t needed = plan.workspace_size();
  std::printf("%d\n", needed > 0 && needed < sizeof memory);
  for (const planq::Workspace& workspace :
       {planq::Workspace{}, planq::Workspace{memory, needed - 1},
        planq::Workspace{memory + 1, needed}, planq::Workspace{memory, needed}})
    caught([&] { plan.run(kHost, workspace, given); });
}

// Nothing is thrown, and the sentences are those of the exceptions.
void tries() {
  const auto told = [](const planq::Status& status) {
    std::printf("%d %s: %s\n", static_cast<bool>(status), status.name(), status.message().c_str());
  };
  auto made = Plan::try_select(kHost, rows_descriptor());
  told(made.status());
  Rows given;
  auto operands = given.operands();
  told(made->try_run(kHost, {}, operands));
  given.print();
  told(made->can_implement(operands));
  auto launch = made->try_bind({}, operands);
  told(launch->try_run(Stream::host(3)));
  told(Plan::try_from_json(kHost, (*made).to_json()).status());
  told(Plan::try_select(kHost, rows_descriptor().set("colour", 3)).status());
  told(Plan::try_from_json(kHost, "{}").status());
  operands.pop_back();
  told(made->try_run(kHost, {}, operands));
  told(made->can_implement(operands));
  told(made->try_bind({}, operands).status());
  told(launch->try_run(Stream::cuda(nullptr, 2)));
  told(Plan::try_foresee(planq::Device::named("sm_90"), planq::Descriptor("nothing")).status());
  caught([] { Plan::try_select(kHost, planq::Descriptor("")).value(); });
  caught([] {
    auto none = Plan::try_from_json(kHost, "");
    none.value();
  });
  const Plan taken = Plan::try_select(kHost, rows_descriptor()).value();
  std::printf("%s\n", taken.sku().c_str());
}

// --- Lifetimes -----------------------------------------------------------------------------------

bool lives(planq_plan number) {
  std::size_t size = 0;
  return planq_plan_sku(number, nullptr, 0, &size) == PLANQ_OK;
}

void lifetimes() {
  planq_plan number = 0;
  {
    Plan first = select_elsewhere(kHost);
    number = first.number();
    Plan copy = first;                    // two references
    const Plan moved = std::move(first);  // still two
    std::printf("%d", first.number() == 0 && moved.number() == number);
    copy = select_elsewhere(kHost);  // one
    std::printf("%d", lives(number) && copy.number() != number);
    Plan& itself = copy;
    copy = itself;
    std::printf("%d", lives(copy.number()));
    copy = std::move(moved);  // const: a copy, two
    std::printf("%d", copy.number() == number);
  }
  std::printf("%d", !lives(number));
  {
    Plan empty(0);
  }
  const Plan owner = select_elsewhere(kHost);
  planq_plan_retain(owner.number());
  {
    const Plan taken(owner.number());
  }  // takes over the reference above
  std::printf("%d", lives(owner.number()));
  std::vector<Plan> many(5, owner);
  many.erase(many.begin(), many.begin() + 3);
  std::printf("%d\n", lives(owner.number()));
}

// --- Devices that are absent ---------------------------------------------------------------------

void foreseen() {
  for (const char* name : {"host", "sm_80", "sm_90"}) {
    const planq::Device device = planq::Device::named(name);
    std::printf("%s %d %d %d %zu %zu\n", device.name, device.backend, device.arch,
                device.multiprocessors, device.shared_memory_per_block, device.l2_bytes);
    const Plan plan = Plan::foresee(device, rows_descriptor());
    std::printf("%s\n%zu\n", plan.to_json().c_str(), plan.workspace_size({{"m", 3}}));
    Rows made;
    const auto given = made.operands();
    const Stream stream = device.backend == PLANQ_CUDA ? Stream::cuda(nullptr, 0) : kHost;
    caught([&] { plan.run(stream, {}, given); });
    caught([&] { plan.bind({}, given); });
    caught([&] { plan.can_implement(given).check(); });
  }
  auto own = planq::Device::named("sm_90");
  own.multiprocessors = 3;
  std::strcpy(own.name, "a part of it");
  std::printf("%s\n", Plan::foresee(own, rows_descriptor()).sku().c_str());
  caught([] { planq::Device::named("sm_7"); });
  caught([&] { Plan::foresee(own, rows_descriptor(), planq::Preference().backend("host")); });
  own.backend = 5;
  caught([&] { Plan::foresee(own, rows_descriptor()); });
}

}  // namespace

int main(int count, char** words) {
  const std::map<std::string, void (*)()> parts = {
      {"rows", rows},           {"allocations", allocations},
      {"bound", bound},         {"lists", lists},
      {"numbers", numbers},     {"operands", operands},
      {"texts", texts},         {"dtypes", dtypes},
      {"json", json},           {"refused", refused},
      {"tries", tries},         {"workspaces", workspaces},
      {"lifetimes", lifetimes}, {"foreseen", foreseen}};
  const auto part = count == 2 ? parts.find(words[1]) : parts.end();
  if (part == parts.end()) return 2;
  part->second();
  return 0;
}
