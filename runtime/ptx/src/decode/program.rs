//! A kernel's syntax tree to its [`Program`].

use super::{
    build::{Build, Callee, Facts, Placement},
    form::{self, Form, Quals},
    init::{Node, share, suspects},
    names::{Meaning, Names},
    order::Order,
};
use crate::{
    arch::Head,
    counters::Kind,
    error::Error,
    exec::{
        lanes::Tier,
        program::{Inst, Limits, ParamSlot, Program},
        regs::Slot,
    },
    isa::control::Exit,
    text::ast::{self, Operand, Space, Stmt},
};
use std::collections::HashMap;

/// A decoded kernel. (A type of its own so that the decoder can grow more results.)
pub type Decoded = Program;

/// One instruction with the scope that it stands in.
struct Item<'a> {
    scope: usize,
    /// None for the `exit` that ends a body.
    inst: Option<&'a ast::Inst>,
    line: u32,
}

/// The instructions of a kernel and its functions, laid out one after the other.
struct Layout<'a> {
    module: &'a ast::Module,
    names: Names,
    items: Vec<Item<'a>>,
    callees: HashMap<usize, Callee>,
    /// First instruction of each body.
    starts: Vec<u32>,
}

/// Decodes kernel `entry` of `module`. `text` is the module's text, for messages.
pub fn decode(module: &ast::Module, text: &str, entry: &str, tier: Tier) -> Result<Program, Error> {
    let mut function = None;
    for f in &module.functions {
        if f.entry && f.name == entry && f.body.is_some() {
            function = Some(f);
        }
    }
    let Some(function) = function else {
        let known: Vec<_> = module.functions.iter().filter(|f| f.entry).map(|f| f.name.as_str()).collect();
        return Err(Error::new(0, format!("no kernel `{entry}`; the module has: {}", known.join(", "))));
    };
    let mut layout = Layout::new(module);
    let params = layout.kernel(function)?;
    let forms = layout.forms()?;

    // First pass: operands, facts, constants. Second pass: the same with final slots.
    let facts = layout.facts(&forms, tier)?;
    let guarded = |item: &Item<'_>| item.inst.is_some_and(|i| i.guard.is_some());
    let nodes: Vec<Node<'_>> =
        facts.iter().zip(&layout.items).map(|(facts, item)| Node { facts, guarded: guarded(item) }).collect();
    let numbers: HashMap<Slot, usize> = layout.names.registers.iter().enumerate().map(|(i, r)| (r.0, i)).collect();
    let widths: HashMap<Slot, u32> = layout.names.registers.iter().map(|r| (r.0, r.1)).collect();
    let suspect = suspects(&nodes, &layout.starts, &numbers);
    let (registers, rows) = share(&nodes, &layout.starts, &numbers, &widths);
    let order = Order::of(&nodes, &layout.starts);
    drop(nodes);
    let placement = Placement { registers, constants: rows };
    let tracking = Tracking::new(&layout.names, &facts, &suspect);

    let held: HashMap<Slot, &String> = {
        let all: std::collections::HashSet<&Slot> = facts.iter().flat_map(|f| &f.held).collect();
        layout.names.registers.iter().filter(|r| all.contains(&r.0)).map(|r| (r.0, &r.2)).collect()
    };
    let held: HashMap<Slot, String> = held.into_iter().map(|(slot, name)| (slot, name.clone())).collect();

    let lines: Vec<&str> = text.lines().collect();
    let (mut code, mut written) = (Vec::with_capacity(layout.items.len()), Vec::new());
    for i in 0..layout.items.len() {
        let (inst, kind) = layout.build(i, &forms, tier, Some(&placement))?;
        let item = &layout.items[i];
        let guard = match item.inst.and_then(|i| i.guard.as_ref()) {
            Some((name, negated)) => match layout.names.find(item.scope, name) {
                Some(Meaning::Pred(pred)) => Some(crate::exec::regs::PredIn { pred, negated: *negated }),
                _ => return Err(Error::new(item.line, format!("guard `{name}` is no predicate register"))),
            },
            None => None,
        };
        let (suspect, tracked) = tracking.of(&facts[i], &suspect[i]);
        let watched = |slots: &[Slot], writes: bool| -> Vec<(Slot, String, bool)> {
            let place = |s: &Slot| placement.registers.get(s).copied().unwrap_or(*s);
            slots.iter().filter_map(|s| Some((place(s), held.get(s)?.clone(), writes))).collect()
        };
        let touches_held: Box<[_]> = match facts[i].held.is_empty() {
            true => [watched(&facts[i].reads, false), watched(&facts[i].writes, true)].concat().into(),
            false => Box::default(),
        };
        written.push(lines.get(item.line.wrapping_sub(1) as usize).map_or("", |l| l.trim()).to_string());
        code.push(Inst {
            op: inst,
            guard,
            kind,
            line: item.line,
            loc: item.inst.and_then(|i| i.loc),
            track: !suspect.is_empty() || !tracked.is_empty() || !touches_held.is_empty(),
            held: touches_held,
            suspect,
            tracked,
            copies: facts[i].copies,
        });
    }
    let names = layout.names;
    let constants: Vec<_> = names
        .constants()
        .iter()
        .map(|(slot, c)| (Slot(slot.0 - super::names::CONSTANT_BASE + rows), c.clone()))
        .collect();
    let all_rows = constants.last().map_or(rows, |(slot, c)| slot.0 + c.rows());
    let param_bytes = params.last().map_or(0, |p| p.offset + p.bytes);
    Ok(Program {
        entry: entry.to_string(),
        code,
        text: written,
        register_rows: rows,
        preds: names.preds,
        constants,
        rows: all_rows,
        local_bytes: names.local,
        static_shared: names.shared,
        dynamic_align: names.dynamic_align.max(16),
        params,
        param_bytes,
        limits: limits(function),
        files: module.files.clone(),
        tracked_registers: tracking.count,
        order,
    })
}

/// The form of an instruction that the module's `.version` and `.target` have.
fn allowed(head: &Head, inst: &ast::Inst) -> Result<(&'static Form, Quals), Error> {
    let form = form::find(&inst.opcode, &inst.quals, inst.line)?;
    head.check(inst)?;
    for operand in &inst.operands {
        if let Operand::Name(name) = operand {
            head.check_register(name, inst.line)?;
        }
    }
    Ok(form)
}

/// Every instruction of every kernel and function that has no form, or none in this module: line and message.
pub fn unknown(module: &ast::Module) -> Vec<Error> {
    fn visit(stmts: &[Stmt], head: &Head, out: &mut Vec<Error>) {
        for stmt in stmts {
            match stmt {
                Stmt::Scope(inner) => visit(inner, head, out),
                Stmt::Inst(inst) => out.extend(allowed(head, inst).err()),
                _ => {}
            }
        }
    }
    let mut out = Vec::new();
    match Head::of(module) {
        Ok(head) => {
            module.functions.iter().filter_map(|f| f.body.as_ref()).for_each(|body| visit(body, &head, &mut out))
        }
        Err(error) => out.push(error),
    }
    out
}

/// Numbers for the registers that strict mode follows.
struct Tracking {
    numbers: HashMap<Slot, (u32, String)>,
    count: u32,
}

impl Tracking {
    fn new(names: &Names, facts: &[Facts], suspect: &[Vec<Slot>]) -> Tracking {
        let mut wanted: std::collections::BTreeSet<Slot> = suspect.iter().flatten().copied().collect();
        // What copies a suspect is one itself: `suspects` has listed its readers already.
        for (facts, suspect) in facts.iter().zip(suspect) {
            if facts.copies && !suspect.is_empty() {
                wanted.extend(&facts.writes);
            }
        }
        let names: HashMap<Slot, &String> = names.registers.iter().map(|r| (r.0, &r.2)).collect();
        let numbers: HashMap<_, _> = wanted
            .iter()
            .enumerate()
            .map(|(i, s)| (*s, (i as u32, names.get(s).map_or(String::new(), |n| n.to_string()))))
            .collect();
        Tracking { count: numbers.len() as u32, numbers }
    }

    fn of(&self, facts: &Facts, suspect: &[Slot]) -> (Box<[(u32, String)]>, Box<[u32]>) {
        let reads = suspect.iter().filter_map(|s| self.numbers.get(s).cloned()).collect();
        let writes = facts.writes.iter().filter_map(|s| self.numbers.get(s).map(|n| n.0)).collect();
        (reads, writes)
    }
}

impl<'a> Layout<'a> {
    fn new(module: &'a ast::Module) -> Layout<'a> {
        let mut names = Names::default();
        // Scope 0 is the module; its variables and functions are found by name when first used.
        names.open(None);
        Layout { module, names, items: Vec::new(), callees: HashMap::new(), starts: Vec::new() }
    }

    /// Lays out a kernel and, by and by, everything that it calls.
    fn kernel(&mut self, kernel: &'a ast::Function) -> Result<Vec<ParamSlot>, Error> {
        for (i, v) in self.module.variables.iter().enumerate() {
            // Shared variables take room only in kernels that name them: `mentioned` below.
            if v.space != Space::Shared {
                self.names.define(0, &v.name, Meaning::Variable(i, v.space == Space::Const), v.line)?;
            }
        }
        for (i, f) in self.module.functions.iter().enumerate() {
            if !f.entry && self.names.find(0, &f.name).is_none() {
                self.names.define(0, &f.name, Meaning::Function(i), f.line)?;
            }
        }
        let scope = self.names.open(Some(0));
        let (mut params, mut offset) = (Vec::new(), 0usize);
        for p in &kernel.params {
            offset = offset.next_multiple_of(p.align);
            self.names.define(scope, &p.name, Meaning::Param(offset as u64), p.line)?;
            params.push(ParamSlot { name: p.name.clone(), offset, bytes: p.bytes() });
            offset += p.bytes();
        }
        self.body(kernel, scope)?;
        self.functions(kernel)?;
        Ok(params)
    }

    fn body(&mut self, function: &'a ast::Function, scope: usize) -> Result<(), Error> {
        self.starts.push(self.items.len() as u32);
        if let Some(body) = &function.body {
            self.stmts(body, scope)?;
        }
        let line = self.items.last().map_or(function.line, |i| i.line);
        self.items.push(Item { scope, inst: None, line });
        Ok(())
    }

    fn stmts(&mut self, stmts: &'a [Stmt], scope: usize) -> Result<(), Error> {
        let mut lists = Vec::new();
        for stmt in stmts {
            match stmt {
                Stmt::Label(name, line) => {
                    self.names.define(scope, name, Meaning::Label(self.items.len() as u32), *line)?
                }
                Stmt::Regs { ty, vector, names, line } => {
                    if *vector != 1 {
                        return Err(Error::new(*line, "vector registers are not supported: declare their parts"));
                    }
                    for (name, count) in names {
                        self.names.registers(scope, *ty, name, *count, *line)?;
                    }
                }
                Stmt::Variable(v) => self.names.variable(scope, v)?,
                Stmt::Scope(inner) => {
                    let scope = self.names.open(Some(scope));
                    self.stmts(inner, scope)?;
                }
                Stmt::Targets { name, labels } => lists.push((name, labels)),
                Stmt::Prototype { name, returns, params } => {
                    let bytes = |list: &[ast::Variable]| list.iter().map(ast::Variable::bytes).collect();
                    self.names.define(scope, name, Meaning::Prototype(bytes(returns), bytes(params)), 0)?;
                }
                Stmt::Callees { name, functions } => {
                    self.names.define(scope, name, Meaning::Callees(functions.clone()), 0)?;
                }
                Stmt::Inst(inst) => {
                    self.mentioned(inst, scope)?;
                    self.items.push(Item { scope, inst: Some(inst), line: inst.line });
                }
            }
        }
        for (name, labels) in lists {
            let mut places = Vec::new();
            for label in labels {
                match self.names.find(scope, label) {
                    Some(Meaning::Label(pc)) => places.push(pc),
                    _ => return Err(Error::new(0, format!("`{label}` in `{name}` is no label"))),
                }
            }
            self.names.define(scope, name, Meaning::Targets(places), 0)?;
        }
        Ok(())
    }

    /// Gives module-scope shared variables that an instruction names their place.
    fn mentioned(&mut self, inst: &'a ast::Inst, scope: usize) -> Result<(), Error> {
        let mut named: Vec<&'a str> = Vec::new();
        inst.operands.iter().for_each(|o| names_in(o, &mut named));
        for name in named {
            let shared = self.module.variables.iter().find(|v| v.space == Space::Shared && v.name == name);
            if let Some(v) = shared
                && self.names.find(scope, name).is_none()
            {
                let meaning = self.names.shared_variable(v);
                self.names.define(0, name, meaning, v.line)?;
            }
        }
        Ok(())
    }

    /// Lays out the functions that a kernel reaches. A function's registers and variables exist once, so recursion is an
    /// error.
    fn functions(&mut self, kernel: &'a ast::Function) -> Result<(), Error> {
        let mut reached: Vec<usize> = Vec::new();
        let mut todo: Vec<&'a ast::Function> = vec![kernel];
        let mut calls: HashMap<&str, Vec<&str>> = HashMap::new();
        while let Some(f) = todo.pop() {
            let (mut named, mut called) = (Vec::new(), Vec::new());
            f.body.iter().for_each(|b| mentions(b, &mut named));
            f.body.iter().for_each(|b| calls_in(b, &mut called));
            // Functions whose addresses lie in a variable that is named may be called through it.
            let mut seen = 0;
            while seen < named.len() {
                let variable = self.module.variables.iter().find(|v| v.name == named[seen]);
                for init in variable.iter().flat_map(|v| &v.init) {
                    if let ast::Init::Address { symbol, .. } = init
                        && !named.contains(&symbol.as_str())
                    {
                        named.push(symbol);
                    }
                }
                seen += 1;
            }
            for (i, callee) in self.module.functions.iter().enumerate() {
                if callee.entry || !named.iter().any(|n| *n == callee.name) {
                    continue;
                }
                if called.contains(&callee.name.as_str()) {
                    calls.entry(&f.name).or_default().push(&callee.name);
                }
                // Of a declaration and a definition with one name, the definition counts.
                let defined = self.module.functions.iter().any(|g| g.name == callee.name && g.body.is_some());
                if reached.contains(&i) || (defined && callee.body.is_none()) {
                    continue;
                }
                reached.push(i);
                todo.push(callee);
            }
        }
        check_recursion(&calls, &kernel.name)?;
        for i in reached {
            let f = &self.module.functions[i];
            let scope = self.names.open(Some(0));
            let place = |names: &mut Names, list: &'a [ast::Variable]| {
                let mut out = Vec::new();
                for v in list {
                    names.variable(scope, v)?;
                    if let Some(Meaning::Local(address)) = names.find(scope, &v.name) {
                        out.push((address, v.bytes()));
                    }
                }
                Ok::<_, Error>(out)
            };
            let returns = place(&mut self.names, &f.returns)?;
            let params = place(&mut self.names, &f.params)?;
            let start = f.body.is_some().then_some(self.items.len() as u32);
            if f.body.is_some() {
                self.body(f, scope)?;
            }
            let callee = Callee { start, end: self.items.len() as u32, params, returns, name: f.name.clone() };
            // The name may mean a declaration: every function of that name leads here.
            for (j, g) in self.module.functions.iter().enumerate() {
                if g.name == f.name {
                    self.callees.insert(j, callee.clone());
                }
            }
        }
        Ok(())
    }

    fn forms(&self) -> Result<Vec<Option<(&'static Form, Quals)>>, Error> {
        let head = Head::of(self.module)?;
        let form = |item: &Item<'_>| match item.inst {
            Some(inst) => allowed(&head, inst).map(Some),
            None => Ok(None),
        };
        self.items.iter().map(form).collect()
    }

    fn facts(&mut self, forms: &[Option<(&'static Form, Quals)>], tier: Tier) -> Result<Vec<Facts>, Error> {
        (0..self.items.len())
            .map(|i| match &forms[i] {
                None => Ok(Facts { ends: true, ..Facts::default() }),
                Some(form) => Ok(self.builder(i, form, tier, None).run(form.0)?.1),
            })
            .collect()
    }

    fn build(
        &mut self,
        i: usize,
        forms: &[Option<(&'static Form, Quals)>],
        tier: Tier,
        placement: Option<&'a Placement>,
    ) -> Result<(Box<dyn crate::exec::op::Op>, Kind), Error> {
        match &forms[i] {
            None => Ok((Box::new(Exit { returns: true }), Kind::Control)),
            Some(form) => Ok((self.builder(i, form, tier, placement).run(form.0)?.0, form.0.kind)),
        }
    }

    fn builder<'s>(
        &'s mut self,
        i: usize,
        form: &(&'static Form, Quals),
        tier: Tier,
        placement: Option<&'s Placement>,
    ) -> Build<'s, 's> {
        let item = &self.items[i];
        // `forms` gave every item with a form its instruction.
        let inst: &'s ast::Inst = item.inst.unwrap_or(&NOTHING);
        Build {
            inst,
            quals: form.1.clone(),
            tier,
            facts: Facts::default(),
            names: &mut self.names,
            scope: item.scope,
            placement,
            callees: &self.callees,
        }
    }
}

/// An empty instruction.
static NOTHING: ast::Inst = ast::Inst {
    guard: None,
    opcode: String::new(),
    quals: Vec::new(),
    operands: Vec::new(),
    line: 0,
    loc: None,
    used_bytes: None,
};

impl Build<'_, '_> {
    fn run(mut self, form: &'static Form) -> Result<(Box<dyn crate::exec::op::Op>, Facts), Error> {
        let op = (form.build)(&mut self)?;
        Ok((op, self.facts))
    }
}

/// Names that a body's instructions hold.
fn mentions<'a>(stmts: &'a [Stmt], out: &mut Vec<&'a str>) {
    for stmt in stmts {
        match stmt {
            Stmt::Scope(inner) => mentions(inner, out),
            Stmt::Inst(inst) => inst.operands.iter().for_each(|o| names_in(o, out)),
            Stmt::Callees { functions, .. } => out.extend(functions.iter().map(String::as_str)),
            _ => {}
        }
    }
}

/// Names of the functions that a body calls directly.
fn calls_in<'a>(stmts: &'a [Stmt], out: &mut Vec<&'a str>) {
    for stmt in stmts {
        match stmt {
            Stmt::Scope(inner) => calls_in(inner, out),
            Stmt::Inst(inst) if inst.opcode == "call" => {
                out.extend(inst.operands.iter().filter_map(|o| match o {
                    Operand::Name(n) => Some(n.as_str()),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
}

/// Names in an operand that are no registers.
fn names_in<'a>(operand: &'a Operand, out: &mut Vec<&'a str>) {
    let mut push = |name: &'a str| {
        if !name.starts_with('%') {
            out.push(name);
        }
    };
    match operand {
        Operand::Name(n) | Operand::Offset(n, _) => push(n),
        Operand::Address { base, rest, .. } => {
            base.as_deref().map(&mut push);
            rest.iter().for_each(|o| names_in(o, out));
        }
        Operand::Vector(parts) | Operand::List(parts) => parts.iter().for_each(|o| names_in(o, out)),
        _ => {}
    }
}

fn check_recursion(calls: &HashMap<&str, Vec<&str>>, from: &str) -> Result<(), Error> {
    fn visit<'s>(
        calls: &HashMap<&'s str, Vec<&'s str>>,
        at: &'s str,
        path: &mut Vec<&'s str>,
        done: &mut Vec<&'s str>,
    ) -> Result<(), Error> {
        if path.contains(&at) {
            return Err(Error::new(
                0,
                format!("recursive call of `{at}`: functions of one kernel must not call themselves"),
            ));
        }
        if done.contains(&at) {
            return Ok(());
        }
        path.push(at);
        for next in calls.get(at).into_iter().flatten() {
            visit(calls, next, path, done)?;
        }
        path.pop();
        done.push(at);
        Ok(())
    }
    visit(calls, from, &mut Vec::new(), &mut Vec::new())
}

/// What the kernel's directives demand.
fn limits(kernel: &ast::Function) -> Limits {
    let mut out = Limits::default();
    for (name, values) in &kernel.directives {
        let at = |i: usize| values.get(i).copied().unwrap_or(1).clamp(1, u32::MAX as u64) as u32;
        let shape = [at(0), at(1), at(2)];
        match name.as_str() {
            "reqntid" => out.required_threads = Some(shape),
            "maxntid" => out.max_threads = Some(shape.iter().fold(1u32, |a, b| a.saturating_mul(*b))),
            "reqnctapercluster" => out.required_cluster = Some(shape),
            "maxclusterrank" => out.max_cluster = Some(at(0)),
            "maxnreg" => out.max_registers = Some(at(0)),
            _ => {}
        }
    }
    out
}
