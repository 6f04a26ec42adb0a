// Backward in two parts gives the bits of the unsplit one, for any module, and leaves the weights' work to
// the weight part.
#include "troika/parallel/split_backward.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <functional>
#include <map>
#include <optional>

#include "parallel/split_backward_zoo.h"

namespace troika::test {
namespace {

constexpr int kMicroBatches = 3;

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (!a.sizes().equals(b.sizes()) || a.dtype() != b.dtype()) return false;
  return std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

/// What `work` throws, of whatever kind.
template <typename Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

/// A part, its inputs for some micro-batches and the gradients that come back to its outputs.
struct Trial {
  explicit Trial(const std::function<Part()>& make) {
    at::set_num_threads(1);  // more only cost for sizes as small as these
    torch::manual_seed(7);
    part = make();
    for (int m = 0; m < kMicroBatches; ++m) {
      Tensors leaves;
      for (const auto& shape : part.inputs) leaves.push_back(torch::randn(shape).requires_grad_());
      inputs.push_back(leaves);
      torch::manual_seed(m);  // for modules that draw
      outputs.push_back(part.run(leaves));
      Tensors of_outputs;
      for (const torch::Tensor& y : outputs.back()) of_outputs.push_back(torch::randn_like(y));
      if (part.is_first_gradient_undefined) of_outputs[0] = torch::Tensor();
      gradients.push_back(of_outputs);
    }
  }

  void unsplit(int m) {
    Tensors roots, root_gradients;
    for (size_t i = 0; i < outputs[m].size(); ++i) {
      if (!outputs[m][i].requires_grad() || !gradients[m][i].defined()) continue;
      roots.push_back(outputs[m][i]);
      root_gradients.push_back(gradients[m][i]);
    }
    torch::autograd::backward(roots, root_gradients);
  }

  SplitBackward split(int m) { return {outputs[m], inputs[m], part.parameters}; }

  Tensors parameter_gradients() const {
    Tensors result;
    for (const torch::Tensor& p : part.parameters)
      result.push_back(p.grad().defined() ? p.grad().clone() : p.grad());
    return result;
  }

  Part part;
  std::vector<Tensors> inputs, outputs, gradients;
};

void expect_same(const Tensors& got, const Tensors& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << what << " " << i;
}

/// Runs the parts in `order`, "I0 W0 I1 W1 ...", and compares with unsplit backwards in the order of the W.
SplitCounts check_order(const std::function<Part()>& make, const std::string& order) {
  Trial whole(make), halves(make);
  std::vector<std::optional<SplitBackward>> split(kMicroBatches);
  SplitCounts counts;
  for (size_t at = 0; at < order.size(); at += 3) {
    const int m = order[at + 1] - '0';
    const std::string what = order + " at " + order.substr(at, 2);
    const Tensors before = halves.parameter_gradients();
    if (order[at] == 'I') {
      split[m].emplace(halves.split(m));
      const Tensors got = split[m]->input_part(halves.gradients[m]);
      expect_same(halves.parameter_gradients(), before, what + ", a parameter that must not change:");
      EXPECT_EQ(split[m]->counts().in_weight_part, 0);
      halves.inputs[m] = got;
    } else {
      split[m]->weight_part();
      counts = split[m]->counts();
      whole.unsplit(m);
      Tensors expected;
      for (const torch::Tensor& x : whole.inputs[m]) expected.push_back(x.grad());
      expect_same(halves.inputs[m], expected, what + ", input");
      expect_same(halves.parameter_gradients(), whole.parameter_gradients(), what + ", parameter");
    }
  }
  return counts;
}

/// All ways to run three input and three weight parts, each weight part after its input part.
void add_orders(const std::string& start, std::vector<std::string>& orders) {
  if (start.size() == 6 * kMicroBatches) orders.push_back(start);
  for (char m = '0'; m < '0' + kMicroBatches; ++m) {
    const bool has_run = start.find(std::string("I") + m) != std::string::npos;
    if (!has_run) add_orders(start + "I" + m + " ", orders);
    if (has_run && start.find(std::string("W") + m) == std::string::npos)
      add_orders(start + "W" + m + " ", orders);
  }
}

class SplitZoo : public testing::TestWithParam<std::tuple<std::string, torch::Dtype>> {
 protected:
  void SetUp() override { torch::set_default_dtype(torch::scalarTypeToTypeMeta(std::get<1>(GetParam()))); }
  void TearDown() override { torch::set_default_dtype(torch::scalarTypeToTypeMeta(torch::kFloat32)); }
};

TEST_P(SplitZoo, BothPartsGiveTheBitsOfTheUnsplitBackward) {
  const auto& [name, type] = GetParam();
  const ZooEntry& entry = zoo().at(name);
  for (const char* order :
       {"I0 W0 I1 W1 I2 W2 ", "I0 I1 I2 W0 W1 W2 ", "I0 I1 W0 I2 W2 W1 ", "I2 I1 I0 W1 W0 W2 "}) {
    const SplitCounts counts = check_order(entry.make, order);
    const bool is_fused = entry.is_fused_in_float32 && type == torch::kFloat32;
    EXPECT_EQ(counts.in_input_part, is_fused ? entry.reached : entry.whole) << order;
    EXPECT_EQ(counts.in_input_part + counts.in_weight_part, entry.reached) << order;
  }
}

std::string zoo_name(const testing::TestParamInfo<SplitZoo::ParamType>& info) {
  return std::get<0>(info.param) + (std::get<1>(info.param) == torch::kFloat32 ? "_float32" : "_float64");
}

INSTANTIATE_TEST_SUITE_P(Modules, SplitZoo,
                         testing::Combine(testing::ValuesIn(zoo_names()),
                                          testing::Values(torch::kFloat32, torch::kFloat64)),
                         zoo_name);

TEST(SplitBackward, AnyOrderOfThePartsGivesTheSameBits) {
  std::vector<std::string> orders;
  add_orders("", orders);
  EXPECT_EQ(orders.size(), 90u);
  for (const std::string& order : orders)
    for (const char* name : {"shared_three_times", "lstm"}) check_order(zoo().at(name).make, order);
}

/// What the dispatcher ran on this thread while an object lives: each operator's calls, with which of its
/// results were asked for.
class Ran {
 public:
  Ran() {
    now() = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&Ran::start, &Ran::note)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~Ran() { at::removeCallback(handle_); }
  Ran(const Ran&) = delete;
  Ran& operator=(const Ran&) = delete;

  int count(const std::string& name) const { return calls.contains(name) ? calls.at(name).size() : 0; }
  std::map<std::string, std::vector<std::vector<bool>>> calls;

 private:
  static Ran*& now() {
    static thread_local Ran* ran = nullptr;
    return ran;
  }
  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction&) { return nullptr; }
  static void note(const at::RecordFunction& function, at::ObserverContext*) {
    std::vector<bool> asked;
    for (const c10::IValue& value : function.outputs())
      asked.push_back(value.isTensor() && value.toTensor().defined());
    now()->calls[function.name()].push_back(asked);
  }
  at::CallbackHandle handle_;
};

TEST(SplitBackward, ProductsForWeightsRunInTheWeightPartOnly) {
  Trial trial([] {
    torch::nn::Sequential layers;
    for (int i = 0; i < 4; ++i) {
      layers->push_back(torch::nn::Linear(torch::nn::LinearOptions(6, 6).bias(i % 2 == 0)));
      layers->push_back(torch::nn::Tanh());
    }
    return chain_of(layers, {3, 6});
  });
  const auto products = [](Ran& ran) { return ran.count("aten::mm") + ran.count("aten::addmm"); };
  SplitBackward split = trial.split(0);
  {
    Ran ran;
    split.input_part(trial.gradients[0]);
    EXPECT_EQ(products(ran), 4);
    EXPECT_EQ(ran.count("aten::tanh_backward"), 4);
    EXPECT_EQ(ran.count("aten::sum"), 0);  // for the biases
  }
  {
    Ran ran;
    split.weight_part();
    EXPECT_EQ(products(ran), 4);
    EXPECT_EQ(ran.count("aten::tanh_backward"), 0);
    EXPECT_EQ(ran.count("aten::sum"), 2);
  }
  EXPECT_EQ(split.counts(), (SplitCounts{.in_input_part = 0, .in_weight_part = 6}));
}

TEST(SplitBackward, ConvolutionsAndNormsAreAskedForOnePartAtATime) {
  const std::map<std::string, std::string> kernels = {{"convolution", "aten::convolution_backward"},
                                                      {"layer_norm", "aten::native_layer_norm_backward"},
                                                      {"group_norm", "aten::native_group_norm_backward"},
                                                      {"batch_norm", "aten::native_batch_norm_backward"}};
  for (const auto& [name, kernel] : kernels) {
    Trial trial(zoo().at(name).make);
    SplitBackward split = trial.split(0);
    std::vector<std::vector<bool>> first, second;
    {
      Ran ran;
      split.input_part(trial.gradients[0]);
      first = ran.calls[kernel];
    }
    {
      Ran ran;
      split.weight_part();
      second = ran.calls[kernel];
    }
    ASSERT_EQ(first.size(), 1u) << name;
    ASSERT_EQ(second.size(), 1u) << name;
    for (size_t i = 0; i < first[0].size(); ++i)
      EXPECT_NE(first[0][i], second[0][i]) << name << " output " << i;
  }
}

TEST(SplitBackward, FusedLayersAndUsersFunctionsRunOnceInTheInputPart) {
  {
    Trial trial(zoo().at("lstm").make);
    SplitBackward split = trial.split(0);
    {
      Ran ran;
      split.input_part(trial.gradients[0]);
      EXPECT_EQ(ran.count("aten::mkldnn_rnn_layer_backward"), 2);  // two layers
    }
    Ran ran;
    split.weight_part();
    EXPECT_EQ(ran.count("aten::mkldnn_rnn_layer_backward"), 0);
    EXPECT_EQ(split.counts(), (SplitCounts{.in_input_part = 8, .in_weight_part = 0}));
  }
  Trial trial(zoo().at("users_function").make);
  SplitBackward split = trial.split(0);
  Scale::calls = 0;
  split.input_part(trial.gradients[0]);
  EXPECT_EQ(Scale::calls, 1);
  split.weight_part();
  EXPECT_EQ(Scale::calls, 1);
}

TEST(SplitBackward, HooksSeeEveryGradientOnce) {
  int intermediate = 0, of_parameter = 0, of_input = 0;
  Trial trial([&] {
    Part part = part_of({weight({5, 5})}, {{4, 5}}, [&](const Tensors& x, const Tensors& p) {
      torch::Tensor y = x[0].mm(p[0]);
      y.register_hook([&](const torch::Tensor& gradient) { return ++intermediate, gradient * 2; });
      return Tensors{y.tanh()};
    });
    part.parameters[0].register_hook([&](const torch::Tensor&) { ++of_parameter; });
    return part;
  });
  trial.inputs[0][0].register_hook([&](const torch::Tensor&) { ++of_input; });
  SplitBackward split = trial.split(0);
  const Tensors first = split.input_part(trial.gradients[0]);
  EXPECT_EQ(std::tie(intermediate, of_parameter, of_input), std::make_tuple(1, 0, 1));
  split.weight_part();
  EXPECT_EQ(std::tie(intermediate, of_parameter, of_input), std::make_tuple(1, 1, 1));
}

/// Whether somebody holds the memory of a tensor.
struct Watch {
  explicit Watch(const torch::Tensor& tensor) : memory(tensor.storage().getWeakStorageImpl()) {}
  bool is_held() const { return !memory.expired(); }
  c10::weak_intrusive_ptr<c10::StorageImpl> memory;
};

TEST(SplitBackward, EachPartFreesWhatNobodyNeedsAnyMore) {
  std::optional<Watch> only_for_input, for_weight, received, gradient;
  const torch::Tensor w = weight({5, 5});
  Tensors outputs, inputs = {torch::randn({4, 5}).requires_grad_()};
  {
    const torch::Tensor before_sin = (inputs[0] * 2).exp();
    const torch::Tensor before_product = before_sin.sin();
    only_for_input.emplace(before_sin);
    for_weight.emplace(before_product);
    received.emplace(inputs[0]);
    outputs = {before_product.mm(w)};  // who holds an output doesn't hold the graph
  }
  SplitBackward split(outputs, inputs, {w});
  inputs.clear();
  EXPECT_TRUE(only_for_input->is_held());
  {
    const Tensors gradients = {torch::randn({4, 5})};
    gradient.emplace(gradients[0]);
    split.input_part(gradients);
  }
  EXPECT_FALSE(only_for_input->is_held());
  EXPECT_FALSE(received->is_held());
  EXPECT_TRUE(for_weight->is_held());
  EXPECT_TRUE(gradient->is_held());
  split.weight_part();
  EXPECT_FALSE(for_weight->is_held());
  EXPECT_FALSE(gradient->is_held());
  EXPECT_TRUE(w.grad().defined());
}

TEST(SplitBackward, AnObjectThatIsDroppedFreesTheGraph) {
  for (const bool runs_input_part : {false, true}) {
    for (const auto& [name, entry] : zoo()) {
      std::vector<Watch> watches;
      {
        Trial trial(entry.make);
        for (int m = 0; m < kMicroBatches; ++m)
          for (const Tensors& list :
               {trial.inputs[m], trial.outputs[m], trial.gradients[m], trial.part.parameters})
            for (const torch::Tensor& tensor : list)
              if (tensor.defined()) watches.emplace_back(tensor);
        SplitBackward split = trial.split(0);
        if (runs_input_part) split.input_part(trial.gradients[0]);
      }
      for (const Watch& watch : watches) EXPECT_FALSE(watch.is_held()) << name;
    }
  }
}

TEST(SplitBackward, AnErrorInTheInputPartLeavesTheGradientsAsTheyWere) {
  Trial trial(zoo().at("users_function").make);
  SplitBackward good = trial.split(0), bad = trial.split(1);
  good.input_part(trial.gradients[0]);
  good.weight_part();
  const Tensors before = trial.parameter_gradients();
  Scale::fails = true;
  EXPECT_EQ(message_of([&] { bad.input_part(trial.gradients[1]); }), "the scale broke");
  Scale::fails = false;
  expect_same(trial.parameter_gradients(), before, "parameter");
}

TEST(SplitBackward, AParameterDoesNotTakeTheMemoryOfTheCallersGradient) {
  const torch::Tensor bias = weight({4, 5}), received = torch::ones({8, 5});
  const Tensors inputs = {torch::randn({4, 5}).requires_grad_()};
  SplitBackward split({inputs[0] + bias}, inputs, {bias});
  split.input_part({received.narrow(0, 0, 4)});
  split.weight_part();
  received.zero_();
  EXPECT_TRUE(torch::equal(bias.grad(), torch::ones({4, 5})));
}

TEST(SplitBackward, AGradientOfTheWrongShapeIsRefused) {
  Trial trial([] { return chain_of(torch::nn::Linear(5, 5), {4, 5}); });
  SplitBackward split = trial.split(0);
  EXPECT_NE(message_of([&] {
              split.input_part({torch::ones({3, 5})});
            }).find("invalid gradient at index 0"),
            std::string::npos);
}

TEST(SplitBackward, ThePartsRunInOrderAndOnce) {
  Trial trial([] { return chain_of(torch::nn::Linear(5, 5), {4, 5}); });
  SplitBackward split = trial.split(0);
  EXPECT_DEATH(split.weight_part(), "after the input part");
  split.input_part(trial.gradients[0]);
  EXPECT_DEATH(split.input_part(trial.gradients[0]), "the input part comes first, and once");
  split.weight_part();
  EXPECT_DEATH(split.weight_part(), "and once");
}

}  // namespace
}  // namespace troika::test
