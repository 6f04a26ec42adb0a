#include "troika/parallel/split_backward.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <string_view>
#include <typeindex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "troika/base/error.h"

namespace troika {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using NodePointer = c10::intrusive_ptr<Node>;

/// Gives out the gradients it keeps, one along each edge. One starts the weight part; others stand behind a
/// node that runs whole in the input part, with that node's place in the order, so that sums keep their bits.
struct KeptGradients final : Node {
  explicit KeptGradients(uint64_t sequence_nr) : Node(sequence_nr) {}

  void add(const Edge& edge, at::Tensor gradient) {
    add_next_edge(edge);
    gradients.push_back(std::move(gradient));
  }

  /// Makes an input in the likeness of where `edge` leads, to be put before it; returns its number.
  uint32_t keep(const Edge& edge) {
    input_metadata_.emplace_back(edge.function->input_metadata(edge.input_nr));
    add(edge, {});
    return num_inputs() - 1;
  }

  /// Copies: a parameter would take a gradient that nobody else holds as its .grad, and its memory may be
  /// the caller's.
  std::vector<at::Tensor> apply(std::vector<at::Tensor>&&) override { return gradients; }

  std::vector<at::Tensor> gradients;
};
using KeptPointer = c10::intrusive_ptr<KeptGradients>;

/// Which leaves can be reached from a node.
struct Reach {
  bool input = false;
  bool parameter = false;
  bool visited = false;
};

/// The part of autograd's graph that hangs on the roots visited.
struct Graph {
  Graph(const std::vector<Edge>& inputs, const std::vector<Edge>& parameters) {
    for (const Edge& edge : parameters) reach[edge.function.get()].parameter = true;
    for (const Edge& edge : inputs) reach[edge.function.get()].input = true;
  }

  /// By hand, since a graph may be deeper than the stack of calls.
  void visit(const NodePointer& root) {
    std::vector<std::pair<NodePointer, uint32_t>> path;
    const auto enter = [&](const NodePointer& node) {
      if (!std::exchange(reach[node.get()].visited, true)) path.emplace_back(node, 0);
    };
    enter(root);
    while (!path.empty()) {
      Node& node = *path.back().first;
      if (path.back().second < node.num_outputs()) {
        const Edge& edge = node.next_edge(path.back().second++);
        if (edge.is_valid()) enter(edge.function);
        continue;
      }
      Reach& own = reach[&node];
      for (const Edge& edge : node.next_edges()) {
        if (!edge.is_valid()) continue;
        own.input |= reach[edge.function.get()].input;
        own.parameter |= reach[edge.function.get()].parameter;
      }
      nodes.push_back(std::move(path.back().first));
      path.pop_back();
    }
  }

  /// Along such an edge flows what only the weight part needs.
  bool only_to_parameters(const Edge& edge) const {
    if (!edge.is_valid()) return false;
    const Reach& there = reach.at(edge.function.get());
    return there.parameter && !there.input;
  }

  std::unordered_map<Node*, Reach> reach;
  std::vector<NodePointer> nodes;
};

/// Whether a node computes each of its gradients by itself and only when it is asked for, so that asking
/// twice for different ones does the work once. The default is no: a node that is missing here runs whole in
/// the input part, which is right for every node, only less apart.
bool computes_apart(Node& node) {
  static const std::unordered_set<std::string_view> kNames = {"AddBackward0",
                                                              "AddbmmBackward0",
                                                              "AddcdivBackward0",
                                                              "AddcmulBackward0",
                                                              "AddmmBackward0",
                                                              "AddmvBackward0",
                                                              "BaddbmmBackward0",
                                                              "BmmBackward0",
                                                              "CatBackward0",
                                                              "ConvolutionBackward0",
                                                              "DivBackward0",
                                                              "DotBackward0",
                                                              "LerpBackward1",
                                                              "MaximumBackward0",
                                                              "MinimumBackward0",
                                                              "MmBackward0",
                                                              "MulBackward0",
                                                              "MvBackward0",
                                                              "NativeBatchNormBackward0",
                                                              "NativeGroupNormBackward0",
                                                              "NativeLayerNormBackward0",
                                                              "PowBackward1",
                                                              "StackBackward0",
                                                              "SubBackward0",
                                                              "TrilinearBackward0",
                                                              "WhereBackward0"};
  thread_local std::unordered_map<std::type_index, bool> known;  // to make a name takes longer than the rest
  const auto [found, is_new] = known.try_emplace(typeid(node), false);
  if (is_new) found->second = kNames.contains(node.name());
  // Hooks see one call with everything, as in the unsplit backward.
  return found->second && node.pre_hooks().empty() && node.tensor_pre_hooks().empty() &&
         node.retains_grad_hooks().empty() && node.post_hooks().empty();
}

/// Frees what a node has saved as soon as it has run, as the engine does where nothing runs again. Else the
/// input part would end with all of forward's memory and all that the weight part keeps.
class FreesSaved final : public torch::autograd::FunctionPostHook {
 public:
  explicit FreesSaved(Node& node) : node_(node) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    node_.release_variables();
    return outputs;
  }

 private:
  Node& node_;  // owns the hook
};

/// Puts a node behind `node` that keeps what flows towards the parameters.
KeptPointer keep_behind(Node& node, const Graph& graph) {
  auto kept = c10::make_intrusive<KeptGradients>(node.sequence_nr());
  // Writing through a view is a node within a node; the inner one looks at its own edges.
  auto* slices = dynamic_cast<torch::autograd::CopySlices*>(&node);
  for (uint32_t i = 0; i < node.num_outputs(); ++i) {
    Edge& edge = node.next_edges()[i];
    if (!graph.only_to_parameters(edge)) continue;
    edge = Edge(kept, kept->keep(edge));
    if (slices != nullptr && slices->fn) slices->fn->next_edges()[i] = edge;
  }
  return kept;
}

/// How many of `parameters` get a gradient through one of `kept`.
int64_t count_reached(const std::vector<KeptPointer>& kept, const std::vector<Edge>& parameters) {
  Graph behind({}, {});
  for (const KeptPointer& node : kept) behind.visit(node);
  int64_t count = 0;
  for (const Edge& edge : parameters) count += behind.reach.contains(edge.function.get()) ? 1 : 0;
  return count;
}

/// The edges into the leaves that some graph uses; the others have none.
std::vector<Edge> edges_of(const std::vector<at::Tensor>& leaves) {
  std::vector<Edge> edges;
  for (const at::Tensor& leaf : leaves)
    edges.emplace_back(torch::autograd::impl::try_get_grad_accumulator(leaf), 0);
  return edges;
}

std::vector<Edge> visited_of(const std::vector<Edge>& edges, const Graph& graph) {
  std::vector<Edge> visited;
  for (const Edge& edge : edges)
    if (edge.is_valid() && graph.reach.at(edge.function.get()).visited) visited.push_back(edge);
  return visited;
}

std::vector<at::Tensor> run_engine(const std::vector<Edge>& roots, const std::vector<at::Tensor>& gradients,
                                   bool is_last, const std::vector<Edge>& results) {
  if (results.empty()) return {};
  return torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/!is_last,
                                                               /*create_graph=*/false,
                                                               /*accumulate_grad=*/is_last, results);
}

/// The engine wants something for a root.
at::Tensor no_gradient() { return at::empty({0}); }

}  // namespace

struct SplitBackward::State {
  enum class Next { kInputPart, kWeightPart, kNothing };
  Next next = Next::kInputPart;
  std::vector<Edge> roots, inputs, parameters;
  KeptPointer start;
  SplitCounts counts;
};

SplitBackward::SplitBackward(std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs,
                             std::vector<at::Tensor> parameters)
    : state_(std::make_unique<State>()) {
  for (const at::Tensor& output : outputs)
    state_->roots.push_back(
        output.defined() && output.requires_grad() ? torch::autograd::impl::gradient_edge(output) : Edge());
  state_->inputs = edges_of(inputs);
  state_->parameters = edges_of(parameters);
}

SplitBackward::SplitBackward(SplitBackward&&) noexcept = default;
SplitBackward& SplitBackward::operator=(SplitBackward&&) noexcept = default;
SplitBackward::~SplitBackward() = default;

std::vector<at::Tensor> SplitBackward::input_part(const std::vector<at::Tensor>& gradients) {
  TROIKA_ASSERT(state_->next == State::Next::kInputPart, "the input part comes first, and once");
  TROIKA_ASSERT(gradients.size() == state_->roots.size(), "one gradient for each output");
  state_->next = State::Next::kNothing;  // as it stays if a node fails
  const std::vector<Edge> all_roots = std::move(state_->roots);
  const std::vector<Edge> all_inputs = std::move(state_->inputs);

  Graph graph(all_inputs, state_->parameters);
  for (size_t i = 0; i < all_roots.size(); ++i)
    if (all_roots[i].is_valid() && gradients[i].defined()) graph.visit(all_roots[i].function);

  auto start = c10::make_intrusive<KeptGradients>(UINT64_MAX);
  start->add_input_metadata(no_gradient());
  std::vector<Edge> roots;
  std::vector<at::Tensor> root_gradients;
  for (size_t i = 0; i < all_roots.size(); ++i) {
    if (!all_roots[i].is_valid() || !gradients[i].defined()) continue;
    if (graph.only_to_parameters(all_roots[i])) start->add(all_roots[i], gradients[i]);
    if (!graph.reach.at(all_roots[i].function.get()).input) continue;
    roots.push_back(all_roots[i]);
    root_gradients.push_back(gradients[i]);
  }

  // The border: nodes on the way to an input from which an edge leads to parameters only. Asked for what
  // flows into them, the engine hands it out on the way.
  std::vector<Edge> results = visited_of(all_inputs, graph);
  const size_t reached_inputs = results.size();
  std::vector<KeptPointer> whole;
  std::unordered_set<Node*> apart;
  for (const NodePointer& node : graph.nodes) {
    if (!graph.reach.at(node.get()).input) continue;
    bool is_border = false;
    for (const Edge& edge : node->next_edges()) is_border |= graph.only_to_parameters(edge);
    if (!is_border) continue;
    if (computes_apart(*node)) {
      apart.insert(node.get());
      for (uint32_t i = 0; i < node->num_inputs(); ++i) results.emplace_back(node, i);
    } else {
      whole.push_back(keep_behind(*node, graph));
      for (uint32_t i = 0; i < whole.back()->num_inputs(); ++i) results.emplace_back(whole.back(), i);
    }
  }
  for (const NodePointer& node : graph.nodes) {
    if (graph.reach.at(node.get()).input && !apart.contains(node.get())) {
      node->add_post_hook(std::make_unique<FreesSaved>(*node));
    }
  }
  const std::vector<at::Tensor> values = run_engine(roots, root_gradients, /*is_last=*/false, results);

  for (size_t i = reached_inputs; i < results.size(); ++i) {
    if (apart.contains(results[i].function.get())) {
      start->add(results[i], values[i]);
    } else {
      static_cast<KeptGradients&>(*results[i].function).gradients[results[i].input_nr] = values[i];
      if (results[i].input_nr == 0) start->add(results[i], {});
    }
  }
  // Without the edges that were followed the border asks for the rest only.
  for (const NodePointer& node : graph.nodes) {
    if (!graph.reach.at(node.get()).input) continue;
    const bool runs_again = apart.contains(node.get());
    for (Edge& edge : node->next_edges())
      if (!runs_again || !graph.only_to_parameters(edge)) edge = Edge();
  }

  state_->parameters = visited_of(state_->parameters, graph);
  state_->counts.in_input_part = count_reached(whole, state_->parameters);
  state_->start = std::move(start);
  state_->next = State::Next::kWeightPart;

  std::vector<at::Tensor> input_gradients;
  size_t reached = 0;
  for (const Edge& input : all_inputs) {
    const bool has_value = reached < reached_inputs && results[reached].function == input.function;
    input_gradients.push_back(has_value ? values[reached++] : at::Tensor());
  }
  return input_gradients;
}

void SplitBackward::weight_part() {
  TROIKA_ASSERT(state_->next == State::Next::kWeightPart,
                "the weight part comes after the input part, and once");
  state_->next = State::Next::kNothing;
  const KeptPointer start = std::move(state_->start);
  const std::vector<Edge> parameters = std::move(state_->parameters);
  run_engine({Edge(start, 0)}, {no_gradient()}, /*is_last=*/true, parameters);
  state_->counts.in_weight_part = static_cast<int64_t>(parameters.size()) - state_->counts.in_input_part;
}

const SplitCounts& SplitBackward::counts() const { return state_->counts; }

}  // namespace troika
