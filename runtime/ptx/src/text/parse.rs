//! Tokens to the syntax tree, by recursive descent. Every error says what was found and what would be right.

use super::{
    ast::{Function, Init, Inst, Loc, Module, Operand, Space, Stmt, Variable},
    lexer::{Spanned, Token, lex},
};
use crate::{error::Error, types::Ty};

/// How deep scopes may nest; deeper is an error, never an overflow of our stack.
const MAX_DEPTH: u32 = 64;
/// The largest variable or register family that makes sense, so that a mutated file cannot ask for all memory.
const MAX_COUNT: u64 = 1 << 30;

/// Parses a whole module.
pub fn parse(text: &str) -> Result<Module, Error> {
    let tokens = lex(text).map_err(|(line, what)| Error::new(line, format!("`{what}` is no PTX token")))?;
    let mut parser = Parser { tokens, at: 0, loc: None, used_bytes: None, depth: 0, module: Module::default() };
    parser.module()?;
    Ok(parser.module)
}

struct Parser<'t> {
    tokens: Vec<Spanned<'t>>,
    at: usize,
    loc: Option<Loc>,
    /// Of the pragma before the next instruction.
    used_bytes: Option<u32>,
    depth: u32,
    module: Module,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.at).map(|t| t.token)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |t| t.line)
    }

    fn next(&mut self) -> Option<Token<'t>> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn found(&self) -> String {
        match self.peek() {
            None => "the end of the text".into(),
            Some(Token::Word(w)) => format!("`{w}`"),
            Some(Token::Dot(d)) => format!("`.{d}`"),
            Some(Token::Int(n)) => format!("`{n}`"),
            Some(Token::F32(_) | Token::F64(_)) => "a floating-point number".into(),
            Some(Token::Text(t)) => format!("\"{}\"", t.chars().take(30).collect::<String>()),
            Some(Token::Punct(p)) => format!("`{p}`"),
        }
    }

    fn wanted<T>(&self, what: &str) -> Result<T, Error> {
        Err(Error::new(self.line(), format!("expected {what}, found {}", self.found())))
    }

    fn is(&self, p: char) -> bool {
        self.peek() == Some(Token::Punct(p))
    }

    fn take(&mut self, p: char) -> bool {
        let hit = self.is(p);
        self.at += hit as usize;
        hit
    }

    fn want(&mut self, p: char) -> Result<(), Error> {
        if self.take(p) { Ok(()) } else { self.wanted(&format!("`{p}`")) }
    }

    fn take_dot(&mut self, name: &str) -> bool {
        let hit = self.peek() == Some(Token::Dot(name));
        self.at += hit as usize;
        hit
    }

    fn word(&mut self, what: &str) -> Result<String, Error> {
        match self.peek() {
            Some(Token::Word(w)) => {
                self.at += 1;
                Ok(w.to_string())
            }
            _ => self.wanted(what),
        }
    }

    fn int(&mut self, what: &str) -> Result<u64, Error> {
        match self.peek() {
            Some(Token::Int(n)) => {
                self.at += 1;
                Ok(n)
            }
            _ => self.wanted(what),
        }
    }

    /// An extent or count, bounded.
    fn count(&mut self, what: &str) -> Result<usize, Error> {
        let line = self.line();
        let n = self.int(what)?;
        if n > MAX_COUNT {
            return Err(Error::new(line, format!("{what} of {n} is more than {MAX_COUNT}")));
        }
        Ok(n as usize)
    }

    // ---- module scope -------------------------------------------------------------------------------------------

    fn module(&mut self) -> Result<(), Error> {
        while let Some(token) = self.peek() {
            let Token::Dot(directive) = token else { return self.wanted("a directive such as `.entry` or `.global`") };
            match directive {
                "version" => self.version()?,
                "target" => self.target()?,
                "address_size" => {
                    self.at += 1;
                    self.module.address_size = self.int("32 or 64")? as u32;
                }
                "file" => self.file()?,
                "section" => self.section()?,
                "loc" => self.skip_line(),
                "alias" | "pragma" => self.skip_statement(),
                _ => self.declaration()?,
            }
        }
        if self.module.target.is_empty() {
            return Err(Error::new(1, "no `.target` directive: a PTX module starts with .version and .target"));
        }
        Ok(())
    }

    fn version(&mut self) -> Result<(), Error> {
        self.at += 1;
        let line = self.line();
        let Some(Token::F64(bits)) = self.peek() else { return self.wanted("a version such as `8.0`") };
        let text = format!("{}", f64::from_bits(bits));
        self.at += 1;
        let (major, minor) = text.split_once('.').unwrap_or((&text, "0"));
        match (major.parse(), minor.parse()) {
            (Ok(major), Ok(minor)) => self.module.version = (major, minor),
            _ => return Err(Error::new(line, format!("`{text}` is no PTX version"))),
        }
        Ok(())
    }

    fn target(&mut self) -> Result<(), Error> {
        self.at += 1;
        loop {
            let name = self.word("an architecture such as `sm_80`")?;
            self.module.target.push(name);
            if !self.take(',') {
                return Ok(());
            }
        }
    }

    fn file(&mut self) -> Result<(), Error> {
        let line = self.line();
        self.at += 1;
        let number = self.int("a file number")? as u32;
        let Some(Token::Text(path)) = self.next() else {
            return Err(Error::new(line, "`.file` wants a number and a quoted path"));
        };
        let mut path = path.to_string();
        // DWARF 5 form: .file 1 "directory" "name"
        if let Some(Token::Text(name)) = self.peek()
            && self.line() == line
        {
            path = format!("{path}/{name}");
        }
        self.module.files.insert(number, path);
        while self.line() == line && self.at < self.tokens.len() {
            self.at += 1;
        }
        Ok(())
    }

    /// Debug sections are data for a debugger: skipped whole.
    fn section(&mut self) -> Result<(), Error> {
        while self.peek().is_some() && !self.is('{') {
            self.at += 1;
        }
        self.want('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Some(Token::Punct('{')) => depth += 1,
                Some(Token::Punct('}')) => depth -= 1,
                Some(_) => {}
                None => return self.wanted("`}` at the end of a .section"),
            }
        }
        Ok(())
    }

    fn skip_line(&mut self) {
        let line = self.line();
        while self.at < self.tokens.len() && self.line() == line {
            self.at += 1;
        }
    }

    /// `.pragma "used_bytes_mask 0x7ff";` belongs to the next instruction; others mean nothing here.
    fn pragma(&mut self) {
        if let Some(Token::Text(t)) = self.tokens.get(self.at + 1).map(|t| t.token)
            && let Some(mask) = t.trim().strip_prefix("used_bytes_mask 0x")
        {
            self.used_bytes = u32::from_str_radix(mask.trim(), 16).ok();
        }
        self.skip_statement();
    }

    fn skip_statement(&mut self) {
        while let Some(token) = self.next() {
            if token == Token::Punct(';') {
                return;
            }
        }
    }

    /// A variable, kernel or function with its linkage.
    fn declaration(&mut self) -> Result<(), Error> {
        let mut external = false;
        loop {
            match self.peek() {
                Some(Token::Dot("extern")) => external = true,
                Some(Token::Dot("visible" | "weak" | "common")) => {}
                Some(Token::Dot("entry")) => {
                    self.at += 1;
                    return self.function(true);
                }
                Some(Token::Dot("func")) => {
                    self.at += 1;
                    return self.function(false);
                }
                Some(Token::Dot("global" | "const" | "shared")) => {
                    let variables = self.variables(external)?;
                    self.module.variables.extend(variables);
                    return Ok(());
                }
                _ => return self.wanted("`.entry`, `.func`, `.global`, `.const` or `.shared`"),
            }
            self.at += 1;
        }
    }

    fn function(&mut self, entry: bool) -> Result<(), Error> {
        let line = self.line();
        while self.take_dot("noreturn") || self.take_attribute()? {}
        let mut returns = Vec::new();
        if !entry && self.is('(') {
            returns = self.params()?;
        }
        let name = self.word("the function's name")?;
        let params = if self.is('(') { self.params()? } else { Vec::new() };
        let mut directives = Vec::new();
        while let Some(Token::Dot(d)) = self.peek() {
            self.at += 1;
            let mut values = Vec::new();
            if d == "pragma" {
                self.skip_statement();
                continue;
            }
            while let Some(Token::Int(n)) = self.peek() {
                self.at += 1;
                values.push(n);
                self.take(',');
            }
            directives.push((d.to_string(), values));
        }
        self.loc = None;
        let body = if self.take(';') { None } else { Some(self.scope()?) };
        self.module.functions.push(Function { name, entry, returns, params, directives, body, line });
        Ok(())
    }

    /// `.attribute(.managed)` and the like mean nothing here.
    fn take_attribute(&mut self) -> Result<bool, Error> {
        if !self.take_dot("attribute") {
            return Ok(false);
        }
        while !self.is(')') {
            if self.next().is_none() {
                return self.wanted("`)`");
            }
        }
        self.want(')')?;
        Ok(true)
    }

    fn params(&mut self) -> Result<Vec<Variable>, Error> {
        self.want('(')?;
        let mut out = Vec::new();
        while !self.take(')') {
            if !out.is_empty() {
                self.want(',')?;
            }
            if !self.take_dot("param") && !self.take_dot("reg") {
                return self.wanted("`.param`");
            }
            out.push(self.declarator_with_type(Space::Param, false)?.0);
        }
        Ok(out)
    }

    // ---- variables ----------------------------------------------------------------------------------------------

    /// `.space .align n .type name[..] = init, name2;`
    fn variables(&mut self, external: bool) -> Result<Vec<Variable>, Error> {
        let space = match self.next() {
            Some(Token::Dot("global")) => Space::Global,
            Some(Token::Dot("const")) => Space::Const,
            Some(Token::Dot("shared" | "shared::cta")) => Space::Shared,
            Some(Token::Dot("local")) => Space::Local,
            _ => Space::Param,
        };
        let (first, proto) = self.declarator_with_type(space, external)?;
        let mut out = vec![first];
        while self.take(',') {
            let mut more = proto.clone();
            self.declarator(&mut more)?;
            out.push(more);
        }
        self.want(';')?;
        Ok(out)
    }

    /// A typed declarator, and the same without name and extents for the next name of the list.
    fn declarator_with_type(&mut self, space: Space, external: bool) -> Result<(Variable, Variable), Error> {
        let (mut align, mut vector, mut ty) = (None, 1, None);
        loop {
            if self.take_attribute()? {
                continue;
            }
            let Some(Token::Dot(d)) = self.peek() else { break };
            self.at += 1;
            match d {
                "align" => align = Some(self.count("an alignment")?.max(1)),
                "v2" => vector = 2,
                "v4" => vector = 4,
                "ptr" | "global" | "shared" | "const" | "local" => {
                    // `.ptr .space .align n` describes what a pointer parameter points to.
                    let described = align;
                    while let Some(Token::Dot(d @ ("global" | "shared" | "const" | "local" | "align"))) = self.peek() {
                        self.at += 1;
                        if d == "align" {
                            self.int("an alignment")?;
                        }
                    }
                    align = described;
                }
                _ => match Ty::parse(d) {
                    Some(t) => ty = Some(t),
                    None => {
                        self.at -= 1;
                        return self.wanted("a type such as `.b32`");
                    }
                },
            }
        }
        let Some(ty) = ty else { return self.wanted("a type such as `.b32`") };
        let natural = ty.bytes() * vector;
        let align = align.unwrap_or(natural);
        if !align.is_power_of_two() {
            return Err(Error::new(self.line(), format!("an alignment of {align} is no power of two")));
        }
        let proto = Variable {
            name: String::new(),
            space,
            ty,
            vector,
            align,
            count: Some(1),
            init: Vec::new(),
            external,
            line: self.line(),
        };
        let mut first = proto.clone();
        self.declarator(&mut first)?;
        Ok((first, proto))
    }

    fn declarator(&mut self, variable: &mut Variable) -> Result<(), Error> {
        variable.line = self.line();
        variable.name = self.word("a name")?;
        while self.take('[') {
            if self.take(']') {
                variable.count = None;
                continue;
            }
            let extent = self.count("an extent")?;
            self.want(']')?;
            let total = variable.count.and_then(|n| n.checked_mul(extent)).filter(|n| *n as u64 <= MAX_COUNT);
            match (variable.count, total) {
                (Some(_), None) => return Err(Error::new(self.line(), "the array is too large")),
                (None, _) => {}
                (_, total) => variable.count = total,
            }
        }
        if self.take('=') {
            self.initialiser(&mut variable.init)?;
            if variable.count.is_none() {
                variable.count = Some(variable.init.len().div_ceil(variable.vector));
            }
            let room = variable.count.unwrap_or(0) * variable.vector;
            if variable.init.len() > room {
                let found = variable.init.len();
                return Err(Error::new(
                    variable.line,
                    format!("`{}` has room for {room} values, its initialiser holds {found}", variable.name),
                ));
            }
        }
        Ok(())
    }

    fn initialiser(&mut self, out: &mut Vec<Init>) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::new(self.line(), format!("more than {MAX_DEPTH} nested braces")));
        }
        if self.take('{') {
            while !self.take('}') {
                self.initialiser(out)?;
                if !self.take(',') && !self.is('}') {
                    return self.wanted("`,` or `}`");
                }
            }
        } else {
            let init = match self.peek() {
                Some(Token::F32(bits)) => Init::F32(bits),
                Some(Token::F64(bits)) => Init::F64(bits),
                Some(Token::Word("generic")) => {
                    self.at += 1;
                    self.want('(')?;
                    let symbol = self.word("a symbol")?;
                    let inner = self.signed_tail()?;
                    self.want(')')?;
                    let offset = inner.wrapping_add(self.signed_tail()?);
                    out.push(Init::Address { symbol, offset, generic: true });
                    self.depth -= 1;
                    return Ok(());
                }
                Some(Token::Word(w)) => {
                    self.at += 1;
                    let offset = self.signed_tail()?;
                    out.push(Init::Address { symbol: w.to_string(), offset, generic: false });
                    self.depth -= 1;
                    return Ok(());
                }
                _ => {
                    let n = self.signed()?;
                    out.push(Init::Int(n));
                    self.depth -= 1;
                    return Ok(());
                }
            };
            self.at += 1;
            out.push(init);
        }
        self.depth -= 1;
        Ok(())
    }

    /// `-5`, `0x10`.
    fn signed(&mut self) -> Result<i64, Error> {
        let negative = self.take('-');
        let n = self.int("a number")? as i64;
        Ok(if negative { n.wrapping_neg() } else { n })
    }

    /// `+4`, `-4`, `+-4` after a symbol; 0 where there is none.
    fn signed_tail(&mut self) -> Result<i64, Error> {
        if self.take('+') || self.is('-') { self.signed() } else { Ok(0) }
    }

    // ---- bodies -------------------------------------------------------------------------------------------------

    fn scope(&mut self) -> Result<Vec<Stmt>, Error> {
        self.want('{')?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::new(self.line(), format!("more than {MAX_DEPTH} nested scopes")));
        }
        let mut out = Vec::new();
        while !self.take('}') {
            self.statement(&mut out)?;
        }
        self.depth -= 1;
        Ok(out)
    }

    fn statement(&mut self, out: &mut Vec<Stmt>) -> Result<(), Error> {
        let line = self.line();
        match self.peek() {
            Some(Token::Punct('{')) => out.push(Stmt::Scope(self.scope()?)),
            Some(Token::Punct(';')) => self.at += 1,
            Some(Token::Punct('@')) => out.push(Stmt::Inst(self.instruction()?)),
            Some(Token::Dot(d)) => match d {
                "reg" => out.push(self.registers()?),
                "local" | "shared" | "shared::cta" | "param" | "global" | "const" => {
                    out.extend(self.variables(false)?.into_iter().map(Stmt::Variable));
                }
                "loc" => self.location()?,
                "pragma" => self.pragma(),
                "file" => self.file()?,
                // `.maxnreg` and friends may also stand inside a body.
                _ => return self.wanted("a statement: `.reg`, `.local`, `.shared`, `.loc` or an instruction"),
            },
            Some(Token::Word(w)) => {
                if self.tokens.get(self.at + 1).map(|t| t.token) == Some(Token::Punct(':')) {
                    self.at += 2;
                    match self.peek() {
                        Some(Token::Dot("branchtargets")) => {
                            self.at += 1;
                            let mut labels = vec![self.word("a label")?];
                            while self.take(',') {
                                labels.push(self.word("a label")?);
                            }
                            self.want(';')?;
                            out.push(Stmt::Targets { name: w.to_string(), labels });
                        }
                        Some(Token::Dot("callprototype")) => out.push(self.prototype(w.to_string())?),
                        Some(Token::Dot("calltargets")) => {
                            self.at += 1;
                            let mut functions = vec![self.word("a function")?];
                            while self.take(',') {
                                functions.push(self.word("a function")?);
                            }
                            self.want(';')?;
                            out.push(Stmt::Callees { name: w.to_string(), functions });
                        }
                        _ => out.push(Stmt::Label(w.to_string(), line)),
                    }
                } else {
                    out.push(Stmt::Inst(self.instruction()?));
                }
            }
            _ => return self.wanted("a statement or `}`"),
        }
        Ok(())
    }

    /// `.callprototype (returns) _ (params) .noreturn;`
    fn prototype(&mut self, name: String) -> Result<Stmt, Error> {
        self.at += 1;
        let returns = if self.is('(') { self.params()? } else { Vec::new() };
        if self.word("`_`")? != "_" {
            self.at -= 1;
            return self.wanted("`_`");
        }
        let params = if self.is('(') { self.params()? } else { Vec::new() };
        self.skip_statement();
        Ok(Stmt::Prototype { name, returns, params })
    }

    fn location(&mut self) -> Result<(), Error> {
        let line = self.line();
        self.at += 1;
        let file = self.int("a file number")? as u32;
        let source = self.int("a line")? as u32;
        let column = match self.peek() {
            Some(Token::Int(n)) if self.line() == line => {
                self.at += 1;
                n as u32
            }
            _ => 0,
        };
        self.loc = Some(Loc { file, line: source, column });
        // `, function_name $L__info_string0, inlined_at 1 20 3`
        while self.at < self.tokens.len() && self.line() == line {
            self.at += 1;
        }
        Ok(())
    }

    fn registers(&mut self) -> Result<Stmt, Error> {
        let line = self.line();
        self.at += 1;
        let (mut ty, mut vector) = (None, 1);
        while let Some(Token::Dot(d)) = self.peek() {
            self.at += 1;
            match d {
                "v2" => vector = 2,
                "v4" => vector = 4,
                _ => match Ty::parse(d) {
                    Some(t) => ty = Some(t),
                    None => {
                        self.at -= 1;
                        return self.wanted("a register type such as `.b32` or `.pred`");
                    }
                },
            }
        }
        let Some(ty) = ty else { return self.wanted("a register type such as `.b32`") };
        let mut names = Vec::new();
        loop {
            let name = self.word("a register name")?;
            let family = if self.take('<') {
                let n = self.count("a register count")?;
                self.want('>')?;
                Some(n as u32)
            } else {
                None
            };
            names.push((name, family));
            if !self.take(',') {
                break;
            }
        }
        self.want(';')?;
        Ok(Stmt::Regs { ty, vector, names, line })
    }

    fn instruction(&mut self) -> Result<Inst, Error> {
        let mut guard = None;
        if self.take('@') {
            let negated = self.take('!');
            guard = Some((self.word("a predicate register")?, negated));
        }
        let line = self.line();
        let opcode = self.word("an instruction")?;
        let mut quals = Vec::new();
        while let Some(Token::Dot(d)) = self.peek() {
            self.at += 1;
            quals.push(d.to_string());
        }
        let mut operands = Vec::new();
        while !self.take(';') {
            if !operands.is_empty() {
                self.want(',')?;
            }
            operands.push(self.operand()?);
        }
        Ok(Inst { guard, opcode, quals, operands, line, loc: self.loc, used_bytes: self.used_bytes.take() })
    }

    fn operand(&mut self) -> Result<Operand, Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::new(self.line(), format!("more than {MAX_DEPTH} nested operands")));
        }
        let operand = self.operand_inner();
        self.depth -= 1;
        let operand = operand?;
        if self.take('|') {
            let second = self.operand()?;
            return Ok(Operand::Pair(Box::new(operand), Box::new(second)));
        }
        Ok(operand)
    }

    fn operand_inner(&mut self) -> Result<Operand, Error> {
        match self.peek() {
            Some(Token::Punct('{')) => {
                self.at += 1;
                Ok(Operand::Vector(self.list('}')?))
            }
            Some(Token::Punct('(')) => {
                self.at += 1;
                Ok(Operand::List(self.list(')')?))
            }
            Some(Token::Punct('[')) => {
                self.at += 1;
                self.address()
            }
            Some(Token::Punct('!')) => {
                self.at += 1;
                Ok(Operand::Not(self.word("a predicate register")?))
            }
            Some(Token::Punct('-')) => {
                self.at += 1;
                match self.next() {
                    Some(Token::Int(n)) => Ok(Operand::Int((n as i64).wrapping_neg())),
                    Some(Token::F32(bits)) => Ok(Operand::F32(bits ^ 1 << 31)),
                    Some(Token::F64(bits)) => Ok(Operand::F64(bits ^ 1 << 63)),
                    _ => {
                        self.at -= 1;
                        self.wanted("a number")
                    }
                }
            }
            Some(Token::Int(n)) => {
                self.at += 1;
                Ok(Operand::Int(n as i64))
            }
            Some(Token::F32(bits)) => {
                self.at += 1;
                Ok(Operand::F32(bits))
            }
            Some(Token::F64(bits)) => {
                self.at += 1;
                Ok(Operand::F64(bits))
            }
            Some(Token::Word(_)) => {
                let name = self.name()?;
                if self.is('+') || self.is('-') {
                    let offset = self.signed_tail()?;
                    return Ok(Operand::Offset(name, offset));
                }
                Ok(Operand::Name(name))
            }
            _ => self.wanted("an operand"),
        }
    }

    /// A name with its `.x` parts: `%tid.x`, `%v.y`.
    fn name(&mut self) -> Result<String, Error> {
        let mut name = self.word("a name")?;
        while let Some(Token::Dot(d)) = self.peek() {
            self.at += 1;
            name.push('.');
            name.push_str(d);
        }
        Ok(name)
    }

    fn list(&mut self, end: char) -> Result<Vec<Operand>, Error> {
        let mut out = Vec::new();
        while !self.take(end) {
            if !out.is_empty() {
                self.want(',')?;
            }
            out.push(self.operand()?);
        }
        Ok(out)
    }

    /// After `[`.
    fn address(&mut self) -> Result<Operand, Error> {
        let (base, offset) = match self.peek() {
            Some(Token::Word(_)) => {
                let name = self.name()?;
                (Some(name), self.signed_tail()?)
            }
            _ => (None, self.signed()?),
        };
        let mut rest = Vec::new();
        while self.take(',') {
            rest.push(self.operand()?);
        }
        self.want(']')?;
        Ok(Operand::Address { base, offset, rest })
    }
}
